"""The entry point of the group `torch.backends`, which PyTorch calls at its import from 2.5 on."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Registers the backend "psring" of torch.distributed. psring itself is loaded when the backend is used, so that an import
    of torch neither takes longer nor fails for it."""
    from torch import distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "PSRING"):
        return

    def create(*arguments: Any) -> Any:
        from .torch.backend import create as create_group

        return create_group(*arguments)

    try:
        dist.Backend.register_backend("psring", create, extended_api=True, devices=["cpu", "cuda"])  # type: ignore[call-arg]
    except TypeError:  # before devices were named
        dist.Backend.register_backend("psring", create, extended_api=True)
