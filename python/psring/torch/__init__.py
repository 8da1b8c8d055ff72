"""psring under PyTorch. Importing this module registers the backend "psring" of torch.distributed:

import psring.torch
torch.distributed.init_process_group("psring")
"""

from .backend import ProcessGroup, empty, register

__all__ = ["ProcessGroup", "empty", "register"]

register()
