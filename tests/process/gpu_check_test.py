"""scripts/gpu-check where there is no GPU: up to the first launch as it is, without a network and with an empty home;
beyond that with tools that are played, which shows the order, the limits and that the report survives a kill."""

import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unittest

from support import LIMIT, ProgramTest, Result, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "gpu-check"
PROGRAMS = ("bin/psring", "bin/psring-server", "bin/psring-worker", "bin/psring-bench", "tests/cuda_gpu_test",
            "tests/device_codec_gpu_test", "tests/device_training_gpu_test")

SCRIPTS = {"BENCH": "scripts/gpt_torch.py", "JOBS": "tests/process/gpu_job_test.py", "BACKEND": "tests/python/cuda_test.py"}

# Plays every program: writes its name and arguments down, hangs if they have $HANG in them, else says what it says.
PLAYED = r"""#!/usr/bin/env bash
name=$(basename "$0")
if [ "$name" = python3 ] && [ "$1" = -c ]; then
  case "$2" in *libpsring_cuda*) echo loads; exit;; esac
  exec REAL_PYTHON "$@"
fi
case "$name $*" in
  "nvidia-smi -L") echo "GPU 0: NVIDIA H200 (UUID: GPU-0)"; exit;;
  nvidia-smi*-lms*) echo "1980, 650.5, 61"; exec sleep 1000;;
  nvidia-smi*power.limit*) echo "NVIDIA H200, 143771 MiB, 580.00, 700.00 W, 1980 MHz, 3201 MHz, 345 MHz, 30"; exit;;
  nvidia-smi*) exit;;
  "compute-sanitizer --help") echo "  --kernel-name arg"; exit;;
esac
echo "$name $*" >>"$CALLS"
if [ -n "$HANG" ] && [[ "$name $*" == *$HANG* ]]; then echo "$name hangs"; exec sleep 1000; fi
case "$name $*" in
  psring-bench*) echo "GPT-2: 60.00 ms a step, 1092267 tokens/s; 400 TFLOP/s, 51.0 % of the products' rate";;
  python3*gpt_torch.py*--compile*) way=compile, rate=1000000 ;;&
  python3*gpt_torch.py*) echo "{\"torch\": \"2.9\", \"way\": \"${way:-eager,} parameters f32\", \"step_ms\": 80.0,
    \"attention\": \"flash\", \"tokens_per_s\": ${rate:-900000}}" | tr -d '\n'; echo;;
  psring*compare*)
    while [ "$1" != --out ]; do shift; done
    mkdir -p "$2"
    printf 'strategy,role,step_s,final_loss\nsingle,workers,0.100,3.5\nps,workers,0.120,3.5\n' >"$2/table.csv";;
  compute-sanitizer*) echo "========= ERROR SUMMARY: 0 errors";;
  *) echo "All tests passed";;
esac
"""

# The commands of each stage, in their order.
def tests_of(*script):
    return len(re.findall(r"^    def test_", ROOT.joinpath("tests", *script).read_text(), re.MULTILINE))


ORDER = {
    "1": ["psring-bench gpu --batch 64 --steps", "python3 BENCH --batch 64", "python3 BENCH --batch 64 --compile",
          "psring compare --strategies single,ps,", "psring train --strategy ps",
          "psring compare --strategies single,ddp,", "psring compare --strategies single,ddp,",
          *["python3 -B BACKEND -v Cuda.test_"] * tests_of("python", "cuda_test.py")],
    "2": [*["python3 -B JOBS -v GpuJobs.test_"] * tests_of("process", "gpu_job_test.py"),
          *["compute-sanitizer --tool memcheck"] * 2, *["compute-sanitizer --tool racecheck"] * 2],
    "3": ["cuda_gpu_test", "device_codec_gpu_test", "device_training_gpu_test", "psring-bench gpu --batch 64",
          "psring-bench gpu --batch 64 --steps", "python3 BENCH --batch 64 --parameters bf16",
          "python3 BENCH --batch 64 --compile --parameters bf16", "psring-bench gpu --batch 32",
          "python3 BENCH --batch 32", "python3 BENCH --batch 32 --compile", "psring-bench gpu --batch 128",
          "python3 BENCH --batch 128", "python3 BENCH --batch 128 --compile"],
}
PARTS = {"1": ["build", "torch", "ps", "share", "backend"], "2": ["build", "jobs", "sanitize"],
         "3": ["build", "kernels", "step", "sweep"]}


class GpuCheck(ProgramTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        self.home = self.folder / "home"
        self.home.mkdir()
        self.report = self.folder / "report" / "report.md"
        self.environment = {name: value for name, value in self.environment.items()
                            if name not in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")}
        self.environment.update(OUT=str(self.out), HOME=str(self.home))

    def play(self):
        """A machine whose tools are played, and a tree of programs that are, too."""
        tools = self.folder / "tools"
        tools.mkdir()
        played = PLAYED.replace("REAL_PYTHON", sys.executable)
        for name in ("nvidia-smi", "compute-sanitizer", "python3"):
            (tools / name).write_text(played)
            (tools / name).chmod(0o755)
        packed = self.folder / "packed"
        packed.mkdir()
        manifest = json.dumps({"commit": "0123", "architecture": "90", "needs": []})
        with tarfile.open(packed / "psring-gpu.tar.xz", "w:xz", preset=0) as tar:
            for name, text in ((*((name, played) for name in PROGRAMS), ("lib/libpsring_cuda.so", ""),
                                ("lib/libpsring_c.so", ""), ("manifest.json", manifest))):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text.encode()), 0o755
                tar.addfile(entry, io.BytesIO(text.encode()))
        self.packed = packed
        self.calls = self.folder / "calls"
        self.environment.update(PATH=f"{tools}:{os.environ['PATH']}", CALLS=str(self.calls), HANG="")

    def begin(self, *arguments, hang="", prefix=()):
        self.calls_before = self.called()
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        process = subprocess.Popen([*prefix, sys.executable, SCRIPT, "--report", self.report, *map(str, arguments)],
                                   cwd=self.folder, env={**self.environment, "HANG": hang}, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def end(self, process, limit=LIMIT):
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.fail(f"hangs after {limit} s")
        return Result(process.returncode, out + err, err, 0)

    def check(self, *arguments, limit=LIMIT, **options):
        return self.end(self.begin(*arguments, **options), limit)

    def called(self):
        if not hasattr(self, "calls") or not self.calls.exists():
            return []
        text = self.calls.read_text()
        for name, script in SCRIPTS.items():
            text = text.replace(str(ROOT / script), name)
        return text.splitlines()

    def told(self):
        """The report that came back."""
        return (self.out / "gpu-check.md").read_text()

    def assert_parts(self, text, *parts):
        self.assertEqual(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE), list(parts))

    # ------------------------------------------------------------------------------------------------------

    def test_without_gpu_network_and_home(self):
        """What was packed starts and finds its libraries; then there is no GPU, and the report says so."""
        build = pathlib.Path(os.environ.get("PSRING_CUDA_BUILD", ""))
        if not (build / "CMakeCache.txt").exists():
            self.skipTest("built without CUDA")
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        packed = self.folder / "packed"
        self.assertEqual(self.check("--pack", packed, "--build", build, limit=240).status, 0)
        self.assertLess((packed / "psring-gpu.tar.xz").stat().st_size, 48 << 20)
        prefix = ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            prefix = []  # the rest is worth looking at where namespaces may not be made
        for stage, parts in PARTS.items():
            with self.subTest(stage=stage):
                result = self.check("--prebuilt", packed, "--stage", stage, prefix=prefix)
                self.assertEqual(result.status, 1, result.out)
                self.assertIn("its CUDA module loads: exit status 0", result.out)
                for part in parts[1:]:
                    self.assertIn(f"- {part} (not run: there is no GPU)", self.told())
        self.assertEqual(list(self.home.iterdir()), [])

    def test_what_is_missing_is_said(self):
        result = self.check("--prebuilt", self.folder / "nowhere", "--stage", "1")
        self.assertEqual(result.status, 1)
        self.assertIn("psring-gpu.tar.xz is missing: make it", self.told())
        self.assertIn("### torch (not run: there is nothing to run)", self.told())

    def test_stages_in_order_of_value(self):
        self.play()
        reports = []
        for stage in ("1", "2", "3"):
            with self.subTest(stage=stage):
                result = self.check("--prebuilt", self.packed, "--stage", stage)
                self.assertEqual(result.status, 0, result.out)
                calls = [call for call in self.called()[len(self.calls_before):] if call != "psring --version"]
                self.assertEqual(len(calls), len(ORDER[stage]), calls)
                for call, wanted in zip(calls, ORDER[stage]):
                    self.assertTrue(call.startswith(wanted), f"{call}, not {wanted}")
                self.assertEqual(sorted(os.listdir(self.out)), ["gpu-check-log.txt", "gpu-check.md"])
                reports.append(self.folder / f"{stage}.md")
                reports[-1].write_text(self.told())
        whole = self.told()
        self.assert_parts(whole, "build", "torch", "ps", "share", "backend", "jobs", "sanitize", "kernels", "step",
                          "sweep")
        for line in ("power limit 700.00 W, clocks at most 1980 MHz",
                     "a step's share of the measured rate of products: 51.0 %, at least 70 %: **NOT MET**",
                     "psring beside PyTorch, eager, f32 parameters under autocast: 1.214 ×, at least 1.3 ×: **NOT MET**",
                     "psring beside PyTorch, compile, f32 parameters under autocast: 1.092 ×, at least 1.0 ×: **met**",
                     "a step of ps, its servers on the host: 1.20 × single's, at most 1.11 ×: **NOT MET**",
                     "While it worked: clock 1980 to 1980 MHz, 650 to 650 W, at most 61 °C.",
                     "| PyTorch 2.9, eager, f32 parameters under autocast (counts) | flash | 80.0 |"):
            self.assertIn(line, whole)
        merged = self.folder / "merged.md"
        self.assertEqual(self.check("--merge", *reports, "--report", merged).status, 0)
        self.assertEqual(merged.read_text(), whole)

    def test_limits_hold(self):
        """A command that hangs is stopped by its own limit, and the others run; all that hang, by the deadline."""
        self.play()
        result = self.check("--prebuilt", self.packed, "--stage", "3", "--patience", 0.02, hang="cuda_gpu_test")
        self.assertEqual(result.status, 1, result.out)
        self.assertIn("### cuda_gpu_test (stopped)\n", self.told())
        self.assertIn("cuda_gpu_test hangs", self.told())
        self.assertIn("\n### batch 32: PyTorch eager\n", self.told())
        begin = time.monotonic()
        result = self.check("--prebuilt", self.packed, "--only", "ps,share", "--deadline", 8, "--patience", 0.1,
                            hang="compare")
        self.assertEqual(result.status, 1, result.out)
        self.assertLess(time.monotonic() - begin, 20)  # the first command alone may take 24 s
        self.assertIn("### servers on the host keep a GPU busy (stopped)", self.told())
        self.assertIn("### share (not run, for want of time)", self.told())
        self.assertIn("## kernels", self.told())  # of the call before

    def test_report_comes_back_after_an_interruption(self):
        self.play()
        for stage, hang, title in (
                ("1", "--compile", "batch 64: PyTorch --compile"),
                ("1", "psring compare", "servers on the host keep a GPU busy"),
                ("1", "single,ddp", "2 workers on one GPU"),
                ("1", "test_every", "every collective gives the bits of the cpu"),
                ("2", "test_all_ways", "all ways learn alike"),
                ("2", "racecheck", "compute-sanitizer racecheck, cuda_gpu_test"),
                ("3", "device_codec_gpu_test", "device_codec_gpu_test"),
                ("3", "psring-bench", "a step, kernel by kernel"),
                ("3", "--batch 128", "batch 128: psring")):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with self.subTest(stage=stage, title=title, signal=number.name):
                    self.report.unlink(missing_ok=True)
                    process = self.begin("--prebuilt", self.packed, "--stage", stage, hang=hang)
                    told = self.out / "gpu-check.md"
                    until(lambda: process.poll() is not None or
                          (told.exists() and f"### {title} (running)" in told.read_text()
                           and "hangs" in (self.out / "gpu-check-log.txt").read_text()), "the command has begun")
                    self.assertIsNone(process.poll())
                    process.send_signal(number)
                    result = self.end(process)
                    how = "stopped by SIGTERM" if number == signal.SIGTERM else "running"
                    self.assertEqual(result.status, 143 if number == signal.SIGTERM else -9, result.out)
                    self.assertIn(f"- {title} ({how})\n", self.told())
                    self.assertIn("### its CUDA module loads\n", self.told())
                    self.assertIn("hangs", (self.out / "gpu-check-log.txt").read_text())
                    until(lambda: not self.hanging(), "what it started has ended")

    def hanging(self):
        return [arguments for arguments in self.processes().values() if arguments[0] == "sleep"]


if __name__ == "__main__":
    unittest.main()
