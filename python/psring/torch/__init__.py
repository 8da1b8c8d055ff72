"""psring under PyTorch. Importing this module registers the backend "psring" of torch.distributed:

import psring.torch
torch.distributed.init_process_group("psring")
"""

from .._autoload import register
from ._compile import leave_to_python
from ._convert import convert
from ._group import ProcessGroup
from ._row_optimizers import RowOptimizer, RowWiseAdagrad
from ._server import ParameterServer
from ._sharded import Sharded
from ._tables import Tables
from .backend import empty

__all__ = [
    "ParameterServer",
    "ProcessGroup",
    "RowOptimizer",
    "RowWiseAdagrad",
    "Sharded",
    "Tables",
    "convert",
    "empty",
    "register",
]

register()
leave_to_python("psring")
