"""--device cuda: on a machine with a GPU, on one without, and with a psring that was built without CUDA."""

import os
import pathlib
import unittest

from support import BIN, TINY, ProgramTest

ON_DEVICE = ["--strategy", "single", *TINY, "--steps", 4, "--device", "cuda"]
BUILT = any(BIN.parent.glob("lib*/libpsring_cuda.so"))
WITHOUT = pathlib.Path(os.environ["PSRING_WITHOUT_CUDA"])


class CudaTest(ProgramTest):
    def test_trains_or_says_what_is_missing(self):
        result = self.train(*ON_DEVICE)
        if not BUILT:
            self.assert_refused(result, 2, "--device cuda", "built without CUDA", "PSRING_CUDA=ON")
        elif not pathlib.Path("/dev/nvidiactl").exists():
            self.assert_refused(result, 2, "--device cuda", "no GPU")
        else:
            self.assert_done(result)

    def test_a_build_without_cuda_trains_on_the_host_and_says_how_to_get_it(self):
        done = self.run_program(WITHOUT, "train", "--strategy", "ps", "--workers", 2, *TINY, "--steps", 4)
        self.assert_done(done)
        refused = self.run_program(WITHOUT, "train", *ON_DEVICE)
        self.assert_refused(refused, 2, "--device cuda", "built without CUDA", "PSRING_CUDA=ON",
                            "https://developer.nvidia.com/cuda-downloads")

    def test_what_has_no_form_for_gpus_is_refused(self):
        ring = ["--strategy", "ddp", "--workers", 2]
        for arguments, what in (
            (["--strategy", "ps", "--local-reduce"], "--local-reduce"),
            ([*ring, "--link", "1gbit"], "--link 1gbit"),
            ([*ring, "--algorithm", "ring"], "--algorithm ring"),
            ([*ring, "--transport", "tcp"], "--transport tcp"),
            ([*ring, "--encrypt", "on"], "NCCL encrypts nothing"),
            ([*ring, "--fault", "drop:worker:1=1%"], "--fault drop"),
        ):
            result = self.train(*TINY, "--steps", 4, "--device", "cuda", *arguments)
            if BUILT:
                self.assert_refused(result, 2, "--device cuda", what)

    def test_servers_on_gpus(self):
        for arguments, what in (
            (["--strategy", "ddp", "--workers", 2], "--strategy ddp"),
            (["--strategy", "ps", "--optimizer", "lamb"], "lamb"),
            (["--strategy", "ps", "--aggregate", "median"], "--aggregate median"),
            (["--strategy", "ps", "--replicas", 1], "--replicas"),
            (["--strategy", "ps"], "--device cuda" if not BUILT else "no GPU"),
        ):
            if BUILT and what == "no GPU" and pathlib.Path("/dev/nvidiactl").exists():
                continue
            result = self.train(*TINY, "--steps", 4, "--server-device", "cuda", *arguments)
            self.assert_refused(result, 2, what)

    def test_there_is_a_gpu_to_share(self):
        self.assert_refused(self.train(*TINY, "--strategy", "ddp", "--workers", 2, "--share-gpu"), 2, "--share-gpu",
                            "--device cpu")

    def test_an_unknown_device_is_named(self):
        self.assert_refused(self.train(*ON_DEVICE[:-1], "tpu"), 2, "--device", "cpu or cuda", "'tpu'")


if __name__ == "__main__":
    if (BIN / "psring").exists():
        unittest.main()
    print(f"SKIPPED: {BIN} has no programs; scripts/test builds them")
