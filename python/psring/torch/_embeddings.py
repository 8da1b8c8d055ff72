"""Modules that stand for nn.EmbeddingBag and nn.Embedding, with rows in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NoReturn

import torch
import torch.nn.functional as F
from torch import nn

from .._library import UsageError
from .._tables import Rows, Table
from ._rows import Lookups, Values, as_keys, places_of, pooled

if TYPE_CHECKING:
    from ._tables import Tables

# PyTorch 2.6 and earlier do not tell.
_is_exporting: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_exporting", lambda: False)


class ServedEmbedding(nn.Module):
    """Base of both: has a table, and no parameter."""

    def __init__(self, tables: Tables, table: Table, padding_idx: int | None) -> None:
        super().__init__()
        self.tables = tables
        self.table = table
        self.embedding_dim = table.width
        self.num_embeddings = tables.rows_of(table.name)
        self.padding_idx = padding_idx
        self.frozen = False  # rows get no gradients

    def requires_grad_(self, requires_grad: bool = True) -> ServedEmbedding:
        """Freezes or thaws the rows, as seen from this module. It has no parameters by which its parents could reach it."""
        self.frozen = not requires_grad
        return self

    def _keys(self, keys: torch.Tensor) -> torch.Tensor:
        name = self.table.name
        if torch.jit.is_tracing():
            raise UsageError(f"psring: table '{name}': a trace would keep the rows of this moment: call the module itself")
        if _is_exporting():
            raise UsageError(f"psring: table '{name}': torch.export has no rows, which are at servers: call the module itself")
        flat = as_keys(f"table '{name}'", keys)
        self.tables.check_indices(name, flat)
        return flat

    def _rows(self, keys: torch.Tensor) -> Rows:
        return self.tables.rows(self.table, keys)

    def _anchor(self) -> torch.Tensor:
        """Makes the outcome of a function require a gradient, although rows are no tensor that autograd knows."""
        return torch.empty(0, requires_grad=not self.frozen)

    def __prepare_scriptable__(self) -> NoReturn:
        raise UsageError(
            f"psring: table '{self.table.name}': torch.jit.script has no rows, which are at servers: call the module itself"
        )

    def extra_repr(self) -> str:
        return f"'{self.table.name}', {self.embedding_dim}"

    # The state of a module has a matrix that `convert` has replaced, as it had before. It has no rows of other tables: they
    # have no shape, and Tables.state_dict() lists them.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        if self.num_embeddings is not None:
            destination[prefix + "weight"] = self.tables.matrix(self.table)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + "weight"
        if self.num_embeddings is None:
            return
        if key not in state_dict:
            missing_keys.extend([key] if strict else [])
            return
        unexpected_keys[:] = [each for each in unexpected_keys if each != key]
        shape, own = tuple(state_dict[key].shape), (self.num_embeddings, self.embedding_dim)
        if shape == own:
            self.tables.load_matrix(self.table, state_dict[key])
        else:
            error_msgs.append(f"size mismatch for {key}: shape {shape} in the state, {own} in the table")


class Embedding(ServedEmbedding):
    """As nn.Embedding."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        keys = self._keys(input)
        rows = self._rows(keys)
        places = places_of(rows)
        every = Lookups(places, None)
        trained = every
        if self.padding_idx is not None:
            kept = keys != self.padding_idx
            # A lookup of the padding is an empty bag: zeros, and no gradient.
            trained = Lookups(places[kept], kept.cumsum(0) - kept.to(torch.int64))
        read = every if self.num_embeddings is not None else trained  # a matrix has a row for the padding, too
        return pooled(self._anchor(), rows, read, trained).view(*input.shape, self.embedding_dim)


class EmbeddingBag(ServedEmbedding):
    """As nn.EmbeddingBag."""

    def __init__(self, tables: Tables, table: Table, mode: str, include_last_offset: bool, padding_idx: int | None) -> None:
        super().__init__(tables, table, padding_idx)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self, input: torch.Tensor, offsets: torch.Tensor | None = None, per_sample_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        keys = self._keys(input)
        begins = self._begins(input, offsets)
        if self.padding_idx is not None or self.mode == "max":
            self._refuse_offsets(begins, keys.numel())
        weights = self._weights(input, per_sample_weights)
        rows = self._rows(keys)
        places = places_of(rows)
        if self.padding_idx is not None:
            kept = keys != self.padding_idx
            before = torch.cat([begins.new_zeros(1), kept.cumsum(0)])
            places, begins = places[kept], before[begins]
            weights = None if weights is None else weights[kept]
        if self.mode == "max" and places.numel() > 0:
            values: torch.Tensor = Values.apply(self._anchor(), rows)
            return F.embedding_bag(places, values, begins, mode="max")
        lookups = Lookups(places, begins, self.mode == "mean", weights)
        return pooled(self._anchor(), rows, lookups, lookups)

    def _begins(self, input: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
        """The first lookup of each bag."""
        name = self.table.name
        if input.dim() == 2:
            if offsets is not None:
                raise UsageError(f"psring: table '{name}': a matrix of keys has its bags in rows, and takes no offsets")
            return torch.arange(input.size(0)) * input.size(1)
        if input.dim() != 1 or not isinstance(offsets, torch.Tensor) or offsets.dim() != 1:
            raise UsageError(f"psring: table '{name}': expected a matrix of keys, or a vector of keys and a vector of offsets")
        begins = as_keys(f"offsets of '{name}'", offsets)
        if self.include_last_offset:
            if begins.numel() == 0 or int(begins[-1]) != input.numel():
                raise UsageError(f"psring: table '{name}': include_last_offset: the last offset is the number of keys")
            begins = begins[:-1].contiguous()
        if begins.numel() == 0 and input.numel() > 0:
            raise UsageError(f"psring: table '{name}': {input.numel()} keys in no bag")
        return begins

    def _refuse_offsets(self, begins: torch.Tensor, count: int) -> None:
        """Checks offsets as the library does, for bags whose lookups it does not see as they were given."""
        if begins.numel() > 0 and not (begins[0] == 0 and begins[-1] <= count and (begins[1:] >= begins[:-1]).all()):
            raise UsageError(f"psring: table '{self.table.name}': offsets ascend from 0 to the number of keys, {count}")

    def _weights(self, input: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor | None:
        if weights is None:
            return None
        if not isinstance(weights, torch.Tensor) or weights.device.type != "cpu":
            raise UsageError(f"psring: table '{self.table.name}': per_sample_weights: expected a tensor on the CPU")
        if self.mode != "sum" or weights.shape != input.shape:
            raise UsageError(
                f"psring: table '{self.table.name}': per_sample_weights need mode='sum' and the shape of the keys, "
                f"{tuple(input.shape)}"
            )
        return weights.reshape(-1).to(torch.float32).contiguous()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode='{self.mode}'"
