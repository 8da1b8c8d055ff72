"""convert: tables in place of a module's sparse embeddings."""

from __future__ import annotations

from typing import Union

import torch
from torch import nn

from .._library import UsageError
from .._tables import Table
from ._embeddings import Embedding, EmbeddingBag, ServedEmbedding
from ._tables import Tables
from ._wrapper import Wrapper

_Sparse = Union[nn.EmbeddingBag, nn.Embedding]
_Found = tuple[str, nn.Module, str, _Sparse]  # a path, the module above, the name in it, the embedding


def convert(module: nn.Module, tables: Tables, most_keys: int | None = None) -> nn.Module:
    """Replaces each nn.EmbeddingBag(sparse=True) and nn.Embedding(sparse=True) below the module by one of `tables`, in place.
    A table has the name of the first module that it stands for, and begins with rank 0's values of its matrix. Modules with
    one weight share a table. Returns the module: its state_dict() and load_state_dict() have the matrices as before. The
    optimizer of the other parameters is made afterwards. most_keys: as of tables.EmbeddingBag, for each table."""
    if _is_sparse(module):
        raise UsageError("psring: convert: the module is an embedding itself: give the module that has it")
    # named_children() would leave out the second name of a module.
    found: list[_Found] = [
        (f"{path}.{name}" if path else name, parent, name, child)
        for path, parent in module.named_modules()
        for name, child in parent._modules.items()
        if _is_sparse(child)
    ]
    for path, each in module.named_modules():
        if isinstance(each, (Wrapper, nn.parallel.DistributedDataParallel)):
            what = f"{path or 'the module'} is a {type(each).__name__}"
            raise UsageError(f"psring: convert: {what}, which has the weights already: wrap it afterwards")
    if not found:
        raise UsageError("psring: convert: the module has no nn.EmbeddingBag or nn.Embedding with sparse=True")
    for full, _, _, child in found:
        _refuse_different(full, child)
    _refuse_ties(module, found)
    made: dict[int, Table] = {}
    served: dict[int, ServedEmbedding] = {}
    for full, _, _, child in found:
        if id(child) not in served:
            table = made.get(id(child.weight)) or tables._open_matrix(full, child.weight, most_keys)
            made[id(child.weight)] = table
            served[id(child)] = _stand_in(child, tables, table)
    for _, parent, name, child in found:
        setattr(parent, name, served[id(child)])
    return module


def _is_sparse(module: nn.Module | None) -> bool:
    return isinstance(module, (nn.EmbeddingBag, nn.Embedding)) and bool(module.sparse)


def _stand_in(child: _Sparse, tables: Tables, table: Table) -> ServedEmbedding:
    made: ServedEmbedding
    if isinstance(child, nn.EmbeddingBag):
        made = EmbeddingBag(tables, table, child.mode, child.include_last_offset, child.padding_idx)
    else:
        made = Embedding(tables, table, child.padding_idx)
    made.requires_grad_(child.weight.requires_grad)
    return made.train(child.training)


def _refuse_different(full: str, child: _Sparse) -> None:
    """Refuses an embedding that computes something else than a table would."""
    kind = nn.EmbeddingBag if isinstance(child, nn.EmbeddingBag) else nn.Embedding
    weight = child._parameters.get("weight")
    why = None
    if type(child).forward is not kind.forward:
        why = f"is a {type(child).__name__}, whose forward differs from nn.{kind.__name__}'s"
    elif child.max_norm is not None or child.scale_grad_by_freq:
        why = "has max_norm or scale_grad_by_freq, which servers do not know"
    elif weight is None:
        why = "has a weight that is computed: a table needs a parameter"
    elif weight.dtype != torch.float32 or weight.device.type != "cpu":
        why = f"is {weight.dtype} on {weight.device}: a table stands for a matrix of torch.float32 on the CPU"
    elif child._forward_hooks or child._forward_pre_hooks or child._backward_hooks:
        why = "has hooks: register them after convert"
    if why is not None:
        raise UsageError(f"psring: convert: '{full}' {why}")


def _refuse_ties(module: nn.Module, found: list[_Found]) -> None:
    """Refuses a weight that a module which stays has, too: it would be trained apart from the rows."""
    weights = {id(child.weight): full for full, _, _, child in found}
    replaced = {id(child) for _, _, _, child in found}
    for path, each in module.named_modules():
        for name, parameter in each._parameters.items():
            if id(parameter) in weights and id(each) not in replaced:
                full, other = weights[id(parameter)], f"{path}.{name}" if path else name
                raise UsageError(f"psring: convert: '{full}' shares its weight with '{other}', which would stay a parameter")
