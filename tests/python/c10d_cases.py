"""Runs PyTorch's own tests of process groups, as the installed PyTorch ships them, over a backend; prints a line for each.

c10d_cases.py [--as gloo|mpi] BACKEND [PART OF A NAME...]
BACKEND: gloo or psring; WORLD_SIZE: 4 unless the environment says else

The tests believe that they run over gloo, so that they expect of psring all that they expect of gloo. All-to-all on the CPU
is tested for MPI alone: --as mpi psring all_to_all
"""

import argparse
import os
import tempfile
import unittest

import c10d_run

_parser = argparse.ArgumentParser(description="Runs PyTorch's own tests of process groups over a backend.")
_parser.add_argument("--as", dest="role", default="gloo", choices=("gloo", "mpi"), help="what the tests believe")
_parser.add_argument("backend", choices=("gloo", "psring"))
_parser.add_argument("parts", nargs="*", help="run the tests with one of these in their names")
OPTIONS = _parser.parse_args()

FOLDER = tempfile.mkdtemp(prefix="c10d-")
os.environ.update(BACKEND=OPTIONS.role, INIT_METHOD=f"file://{FOLDER}/init", TEMP_DIR=FOLDER)
os.environ.setdefault("WORLD_SIZE", "4")
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test

import psring.torch  # noqa: F401

torch.set_num_threads(1)
_init = dist.init_process_group


def init_process_group(*arguments, backend=None, **options):
    return _init(*arguments, backend=OPTIONS.backend if backend == OPTIONS.role else backend, **options)


distributed_test.dist.init_process_group = init_process_group


class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


names = [name for name in unittest.TestLoader().getTestCaseNames(Cases) if name != "runTest"]
if OPTIONS.parts:
    names = [name for name in names if any(part in name for part in OPTIONS.parts)]
c10d_run.run(map(Cases, names))
