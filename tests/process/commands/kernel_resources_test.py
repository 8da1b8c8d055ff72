"""No kernel spills registers or keeps an array on the stack: both are memory accesses in the innermost loops, which no
test of results shows. The figures are ptxas's own, kept by the build (cmake/keep_ptxas_report.sh); no GPU is needed."""

import os
import pathlib
import re
import subprocess
import unittest

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def kernels_of(report):
    """(kernel, architecture): bytes of stack, of spill stores and of spill loads."""
    found, entry = {}, None
    for line in report.splitlines():
        if begins := ENTRY.search(line):
            entry = begins.groups()
        elif "Function properties" in line and entry and entry[0] not in line:
            raise ValueError(f"a function that is not inlined: {line}")
        elif (memory := MEMORY.search(line)) and entry:
            found[entry] = tuple(map(int, memory.groups()))
    return found


def readable(name):
    try:
        return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip() or name
    except FileNotFoundError:
        return name


class KernelResources(unittest.TestCase):
    def test_reports_are_read(self):
        text = """ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
ptxas info    : Function properties for _Z1av
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, 376 bytes cmem[0]
"""
        self.assertEqual(kernels_of(text), {("_Z1av", "sm_90"): (16, 8, 4)})
        with self.assertRaisesRegex(ValueError, "not inlined"):
            kernels_of(text + text.splitlines()[1].replace("_Z1av", "_Z1bv"))

    def test_no_kernel_spills_or_has_a_stack(self):
        for each in os.environ["PSRING_CUDA_OBJECTS"].split(":"):
            with self.subTest(object=pathlib.Path(each).name):
                kernels = kernels_of(pathlib.Path(each + ".ptxas").read_text())
                self.assertTrue(kernels, f"{each}: ptxas reported no kernels")
                for (name, architecture), (stack, stores, loads) in kernels.items():
                    self.assertEqual((stack, stores, loads), (0, 0, 0),
                                     f"bytes of stack, spill stores and loads, {architecture}: {readable(name)}")


if __name__ == "__main__":
    unittest.main()
