"""Runs tests that PyTorch has written: a line for each, and a count."""

import collections
import dataclasses
import functools
import re
import sys
import time
import types
import unittest

try:
    import expecttest  # noqa: F401
except ImportError:  # PyTorch's tests inherit from its class, which adds what these cases do not use
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=True)

_dataclass = dataclasses.dataclass


def _hashable_dataclass(made=None, **options):
    """PyTorch 1.13 gives fields defaults without a hash, which Python refuses from 3.11 on."""
    if made is None:
        return functools.partial(_hashable_dataclass, **options)
    return _dataclass(made, **{"unsafe_hash": "__hash__" not in vars(made), **options})


dataclasses.dataclass = _hashable_dataclass
try:
    import torch.distributed._shard.sharded_tensor  # noqa: F401
finally:
    dataclasses.dataclass = _dataclass


def _cause(text):
    """Returns the line of the first error in a traceback, or of the errors of ranks that it quotes; else its last line."""
    lines = text.strip().splitlines()
    return next(
        (line for line in lines if re.match(r"(?!RuntimeError: Process)[A-Za-z_.]*(Error|Exception): ", line)), lines[-1]
    )


class Lines(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def startTest(self, test):
        super().startTest(test)
        self.how, self.why, self.begin = "passed", "", time.monotonic()

    def addSkip(self, test, reason):
        self.how, self.why = "skipped", reason.splitlines()[0]

    def addError(self, test, error):
        self.how, self.why = "failed", _cause(self._exc_info_to_string(error, test))

    addFailure = addError

    def addUnexpectedSuccess(self, test):
        self.how, self.why = "failed", "was expected to fail"

    def stopTest(self, test):
        self.counts[self.how] += 1
        name = test.id().split(".", 1)[1]
        print(f"{self.how}\t{name}\t{time.monotonic() - self.begin:.1f} s\t{self.why}", file=sys.__stdout__, flush=True)


def run(cases):
    """Runs the cases, and exits with 1 if one has failed."""
    lines = Lines()
    unittest.TestSuite(cases).run(lines)
    print(", ".join(f"{count} {how}" for how, count in sorted(lines.counts.items())), file=sys.__stdout__)
    sys.exit(1 if lines.counts["failed"] else 0)
