"""Runs a file of PyTorch's test/distributed over psring; prints a line for each test.

c10d_source.py FOLDER/test/distributed/test_c10d_gloo.py [PART OF A NAME...]
FOLDER: PyTorch's source, of the version that is installed

What asks for gloo gets psring. The words of errors are not compared, their kinds are.
"""

import contextlib
import importlib
import os
import sys
import types
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import c10d_run
import psring.torch  # noqa: F401
from psring.torch.backend import create

FILE, PARTS = sys.argv[1], sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(FILE)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(FILE))))


class Gloo:
    """In the place of ProcessGroupGloo."""

    _Options = dist.ProcessGroupGloo._Options
    Options = getattr(dist.ProcessGroupGloo, "Options", None)
    create_device = staticmethod(dist.ProcessGroupGloo.create_device)

    def __new__(cls, store, rank, size, options=None):
        seconds = options._timeout if options else 60.0
        given = types.SimpleNamespace(store=store, group_rank=rank, group_size=size, global_ranks_in_group=[])
        given.timeout = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return create(given, None)


def over_psring(make):
    def made(*arguments, backend=None, **options):
        if arguments and isinstance(arguments[0], str):  # init_process_group's backend by position
            backend, arguments = arguments[0], arguments[1:]
        return make(*arguments, backend="psring" if backend == "gloo" else backend, **options)

    return made


def raises(case, kind, _words, *arguments, **options):
    return case.assertRaises(kind, *arguments, **options)


for name, instead in (
    ("init_process_group", over_psring(dist.init_process_group)),
    ("new_group", over_psring(dist.new_group)),
    ("ProcessGroupGloo", Gloo),
):
    for module in (dist, dist.distributed_c10d):
        setattr(module, name, instead)
dist.ProcessGroup.create_device = Gloo.create_device  # some cases call it for nothing but its effect on gloo
unittest.TestCase.assertRaisesRegex = raises
torch.set_num_threads(1)
tests = importlib.import_module(os.path.basename(FILE)[: -len(".py")])
# Ranks that are forked need not import PyTorch again, which takes most of a test's time.
common_distributed = importlib.import_module("torch.testing._internal.common_distributed")
common_distributed.MultiProcessTestCase._spawn_processes = lambda case: case._start_processes(
    torch.multiprocessing.get_context("fork").Process
)


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        elif not PARTS or any(part in each.id() for part in PARTS):
            yield each


with contextlib.redirect_stdout(sys.stderr):
    c10d_run.run(cases(unittest.defaultTestLoader.loadTestsFromModule(tests)))
