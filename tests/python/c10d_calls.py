"""What tests of a process group's calls share."""

import unittest

import torch
import torch.distributed as dist

from ranks import run

SIZE = 4


def group():
    return dist.distributed_c10d._get_default_group()


def options(make, **values):
    made = make()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def root(make, rank):
    return options(make, rootRank=rank)


def refuses(*calls):
    """Each of the calls raises, and the group still works."""
    for number, call in enumerate(calls):
        try:
            call()
        except (ValueError, RuntimeError, TypeError, NotImplementedError):
            continue
        raise AssertionError(f"call {number} was accepted")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == dist.get_world_size()


def equal(tensor, value):
    expected = torch.as_tensor(value, dtype=tensor.dtype).expand_as(tensor)
    assert torch.equal(tensor, expected), f"{tensor} is not {expected}"


class Ranked(unittest.TestCase):
    def each(self, call, size=SIZE):
        """Runs `call(group, rank, size)` at all ranks."""
        run(lambda rank, n: call(group(), rank, n), size)
