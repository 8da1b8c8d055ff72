"""The parts of scripts/gpu-check, and what runs them one after the other under a deadline."""

import csv
import json
import pathlib
import re
import shlex
import signal
import shutil
import tempfile
import time

from . import packing
from .command import finish
from .machine import Machine, seen
from .report import PARTS, Report

# In order of value: figures first, what takes long last. Each stage is made to fit a command of 10 minutes.
STAGES = {"1": ("build", "torch", "ps", "share", "backend"), "2": ("build", "jobs", "sanitize"),
          "3": ("build", "kernels", "step", "sweep")}
STAGE_SECONDS = 540
LEAST_SECONDS = 10  # what has less time is not begun
NO_TIME = "not run, for want of time"
NO_GPU = "not run: there is no GPU"
GPT2 = "gpt:layers=12,dim=768,heads=12,context=1024,vocab=50304"
TARGETS = (*packing.PROGRAMS, "psring_cuda", "psring_c", *packing.TESTS)
AUTOCAST = "f32 parameters under autocast"
BF16 = "bf16 parameters"


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ended(BaseException):
    """A signal that asks this script to end."""


def raise_ended(number, _frame):
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # the first says it
    raise Ended(signal.Signals(number).name)


def tests_of(script):
    return re.findall(r"^    def (test_\w+)", script.read_text(), flags=re.MULTILINE)


class Check:
    def __init__(self, options, root):
        self.options = options
        self.root = root
        self.end = time.monotonic() + options.deadline
        self.report = Report(options.report)
        self.machine = Machine(root)
        self.home = options.report.parent
        self.tree = self.home / "prebuilt" if options.prebuilt else root / "build" / "gpu"
        self.libraries = []
        self.software = self.machine.software([])
        self.commit = packing.commit_of(root)
        self.environment = dict(self.machine.environment)  # psring's; the machine's own is for all others
        self.configure = []
        self.failed = []

    def left(self):
        return self.end - time.monotonic()

    def too_late(self):
        return self.left() < LEAST_SECONDS * self.options.patience

    def run(self, command, title, seconds, show=None, environment=None, watch=False):
        """A command, with its output in the report: all of it, or the lines that `show` picks. Returns the output, or
        nothing where it failed. `seconds` is the command's own limit; the deadline is another one."""
        report = self.report
        if self.too_late():
            self.failed.append(f"{title} ({NO_TIME})")
            report.say(f"### {title} ({NO_TIME})", "")
            print(f"gpu-check: {title}: {NO_TIME}", flush=True)
            return ""
        command = [str(part) for part in command]
        shown = shlex.join(command).replace(f"{self.root}/", "")
        print(f"gpu-check: {title}", flush=True)
        report.mark_running(title)
        watched = self.home / "watched.csv"
        watched.unlink(missing_ok=True)
        begin = time.monotonic()
        keep = report.keep_output(title, shown)
        options = {"cwd": self.root, "env": environment or self.environment}
        limit = min(seconds * self.options.patience, self.left())
        try:
            if watch:
                with self.machine.watched(watched):
                    status, out = finish(command, limit, keep, **options)
            else:
                status, out = finish(command, limit, keep, **options)
        except OSError as error:
            status, out = "not started", str(error)
        except Ended as ended:
            report.unmark()
            report.say(f"### {title} (stopped by {ended})", "", f"`{shown}`: after {time.monotonic() - begin:.0f} s", "")
            raise
        report.unmark()
        took = f"exit status {status}, {time.monotonic() - begin:.0f} s"
        lines = out.replace(f"{self.root}/", "").splitlines()
        picked = [line for line in lines if show(line)] if show and status == 0 else lines[-40:]
        heading = {0: "", "stopped": " (stopped)"}.get(status, " (failed)")
        report.say(f"### {title}{heading}", "", f"`{shown}`: {took}", "", "```", *picked, "```", "")
        if status == 0 and (clock := seen(watched)):
            report.say(clock, "")
        if status != 0:
            self.failed.append(title + heading)
        report.write()
        print(f"gpu-check: {title}: {took}", *picked, sep="\n  ", flush=True)
        return out if status == 0 else ""

    def refuse(self, title, why):
        """Something without which nothing more can be done."""
        self.failed.append(f"{title} (failed: {why})")
        self.report.say(f"### {title} (failed)", "", why, "")
        self.report.write()
        print(f"gpu-check: {title}: {why}", flush=True)
        return False

    # ---------------------------------------------------------------- what has to be there

    def build(self):
        """Programs, module and tests: unpacked, or built for this GPU's architecture alone. True where they run."""
        return (self.unpack() if self.options.prebuilt else self.compile()) and self.loads()

    def unpack(self):
        manifest = packing.unpack(self.options.prebuilt, self.tree)
        self.commit = f"{manifest['commit']} (built for {manifest['architecture']}, carried along)"
        self.libraries = [self.machine.find_library(name) for name in manifest["needs"]]
        folders = [self.tree / "libraries", *dict.fromkeys(library.parent for library in self.libraries)]
        self.prepend("LD_LIBRARY_PATH", *folders)
        return True

    def prepend(self, name, *folders):
        old = [self.environment[name]] if self.environment.get(name) else []
        self.environment[name] = ":".join([*map(str, folders), *old])

    def compile(self):
        for tool in ("cmake", "ninja", "c++", "nvcc"):
            if shutil.which(tool, path=self.machine.environment["PATH"]) is None:
                return self.refuse("build", f"{tool} is missing: install it, or carry what --pack makes and use --prebuilt")
        if self.options.packages:
            prefix = self.home / "packages"
            packing.unpack_packages(self.options.packages, prefix)
            libraries = prefix / "usr" / "lib" / "x86_64-linux-gnu"
            self.configure += [f"-DCMAKE_PREFIX_PATH={prefix}/usr", "-DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu"]
            self.environment["PKG_CONFIG_PATH"] = f"{libraries}/pkgconfig:{prefix}/usr/share/pkgconfig"
            self.prepend("LD_LIBRARY_PATH", libraries)
        self.add_library("NCCL", "nccl.h", "libnccl.so")
        self.add_library("CUBLAS", "cublasLt.h", "libcublasLt.so")
        architecture = self.options.architecture or self.machine.capability()
        if architecture:
            self.configure.append(f"-DCMAKE_CUDA_ARCHITECTURES={architecture}")
        self.run(["cmake", "-S", self.root, "-B", self.tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  "-DPSRING_CUDA=ON", "-DPSRING_TESTS=ON", *self.configure], "configure", 180)
        self.run(["cmake", "--build", self.tree, "--target", *TARGETS], "build", 1500, lambda line: "warning" in line)
        if self.failed:
            return False
        cache = (self.tree / "CMakeCache.txt").read_text()
        for name in ("CUBLAS", "NCCL"):
            if found := re.search(rf"^PSRING_{name}_LIBRARY:\w+=(/.*)$", cache, flags=re.MULTILINE):
                self.libraries.append(pathlib.Path(found[1]))
        return True

    def add_library(self, name, header, library):
        """As PyTorch brings it, where the toolkit has none."""
        if any((place / header).exists() for place in (self.machine.toolkit / "include", pathlib.Path("/usr/include"))):
            return
        for folder in self.machine.wheels():
            for found in sorted(folder.glob(f"*/include/{header}")):
                for file in sorted((found.parent.parent / "lib").glob(f"{library}*")):
                    self.configure += [f"-DPSRING_{name}_INCLUDE={found.parent}", f"-DPSRING_{name}_LIBRARY={file}"]
                    return

    def loads(self):
        """Whether programs and module find their libraries: that needs no GPU, and everything else needs it."""
        module = next(self.tree.glob(f"lib*/**/{packing.MODULE}"))
        load = f"import ctypes; ctypes.CDLL({str(module)!r}); print('loads')"
        return bool(self.run([self.tree / "bin" / "psring", "--version"], "psring starts", 30)
                    and self.run(["python3", "-c", load], "its CUDA module loads", 60))

    # ---------------------------------------------------------------- what needs a GPU

    def kernels(self):
        """Every kernel against its reference."""
        for test, seconds in zip(packing.TESTS, (100, 60, 100), strict=True):
            self.run([self.tree / "tests" / test, "--durations", "yes"], test, seconds,
                     lambda line: "passed" in line or "test cases" in line)

    def bench(self, title, batch, *more, show=None):
        """psring's step on the GPU: (tokens a second, share of the products' rate in percent), or nothing."""
        out = self.run([self.tree / "bin" / "psring-bench", "gpu", "--batch", batch, *more], title, 100, show, watch=True)
        rate = re.search(r"(\d+) tokens/s", out)
        share = re.search(r"([\d.]+) % of the products' rate", out)
        return (int(rate[1]), float(share[1]) if share else 0.0) if rate else None

    def step(self):
        ours = self.bench("a step, kernel by kernel", self.options.batch)
        self.report.say("Of each call of a kernel, timed alone, what clearing one float takes is left out: its launch.", "")
        if ours:
            self.report.wanted("a step's share of the measured rate of products", f"{ours[1]:.1f} %", ours[1] >= 70,
                               "at least 70 %")

    def beside(self, batch, ways):
        """psring, then PyTorch in each way, at one batch: a table, and what is wanted of the ways that count."""
        ours = self.bench(f"batch {batch}: psring", batch, "--steps", 20, show=lambda line: "tokens/s" in line)
        rows = []
        for way in ways:
            out = self.run(["python3", self.root / "scripts" / "gpt_torch.py", "--batch", batch, *way],
                           f"batch {batch}: PyTorch {' '.join(way) or 'eager'}", 110,
                           environment=self.machine.environment, watch=True)
            rows += [json.loads(line) for line in out.splitlines() if line.startswith("{")][-1:]
        if not ours or not rows:
            return
        attention = "cudnn" if any(library.name.startswith("libcudnn") for library in self.libraries) else "its own"
        self.report.say("| | attention | ms/step | GiB | tokens/s | psring is |", "|---|---|---:|---:|---:|---:|",
                        f"| psring | {attention} | {1e3 * batch * 1024 / ours[0]:.1f} | | {ours[0]:,} | |")
        for row in rows:
            kind = BF16 if "bf16" in row["way"] else f"{AUTOCAST} (counts)"
            self.report.say(f"| PyTorch {row['torch']}, {row['way'].partition(',')[0]}, {kind} | "
                            f"{row.get('attention', 'unknown')} | {row['step_ms']:.1f} | {row.get('peak_gib', '')} | "
                            f"{row['tokens_per_s']:,} | {ours[0] / row['tokens_per_s']:.2f} × |")
        self.report.say("")
        for row in rows if batch == self.options.batch else ():
            if "bf16" not in row["way"]:
                way = row["way"].partition(",")[0]
                least = {"eager": 1.3, "compile": 1.0}[way]
                ratio = ours[0] / row["tokens_per_s"]
                self.report.wanted(f"psring beside PyTorch, {way}, {AUTOCAST}", f"{ratio:.3f} ×", ratio >= least,
                                   f"at least {least} ×")

    def torch(self):
        self.beside(self.options.batch, ([], ["--compile"]))

    def sweep(self):
        """Ways that do not count, and other batches."""
        self.beside(self.options.batch, (["--parameters", "bf16"], ["--compile", "--parameters", "bf16"]))
        for batch in (32, 64, 128):
            if batch != self.options.batch:
                self.beside(batch, ([], ["--compile"]))

    def compare(self, title, seconds, *arguments):
        """psring compare: its table's rows of workers, by strategy."""
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            self.run([self.tree / "bin" / "psring", "compare", *arguments, "--out", f"{folder}/compare"], title, seconds,
                     watch=True)
            table = pathlib.Path(folder) / "compare" / "table.csv"
            rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
        return {row["strategy"]: row for row in rows if row["role"] == "workers"}

    def ps(self):
        shared = ["--model", GPT2, "--data", "synthetic", "--precision", "bf16", "--optimizer", "adamw", "--lr", "0.0001",
                  "--global-batch", self.options.batch, "--steps", 15, "--device", "cuda"]
        servers = ["--workers", 1, "--servers", 8, "--server-threads", 2, *shared]
        rows = self.compare("servers on the host keep a GPU busy", 240, "--strategies", "single,ps,ps-zero2,ps-zero3",
                            *servers)
        if "single" in rows and "ps" in rows:
            ratio = float(rows["ps"]["step_s"]) / float(rows["single"]["step_s"])
            self.report.wanted("a step of ps, its servers on the host", f"{ratio:.2f} × single's", ratio <= 1.11,
                               "at most 1.11 ×")
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            self.run([self.tree / "bin" / "psring", "train", "--strategy", "ps", *servers, "--trace", "on", "--out",
                      f"{folder}/ps"], "what is exposed of it", 120)
            self.exposed(pathlib.Path(folder) / "ps" / "trace.json")

    def exposed(self, trace):
        """Of the GPU's track: where it waits for others, in the steps' second half."""
        if not trace.exists():
            return
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
        steps = sorted(e["ts"] for e in events if e["name"] == "step")
        if not steps:
            raise ValueError("the trace shows no steps")
        since = steps[len(steps) // 2]
        waits = sum(e["dur"] for e in events if e["tid"] == 1 and e["name"] == "waits" and e["ts"] >= since)
        count = len(steps) - len(steps) // 2
        self.report.say(f"The GPU waits for others {waits / 1e3 / count:.2f} ms a step (`waits` on its track of the trace).",
                        "")

    def share(self):
        """Each way ends with single's loss, but for the order of f32 sums (see tests/process/gpu_job_test.py)."""
        for workers in (2, 4):
            rows = self.compare(f"{workers} workers on one GPU", 150, "--strategies",
                                "single,ddp,zero1,zero2,zero3,ps,ps-zero3", "--workers", workers, "--device", "cuda",
                                "--share-gpu", "--model", "gpt:layers=4,dim=256,heads=4,context=256,vocab=256", "--data",
                                "synthetic", "--global-batch", 16, "--optimizer", "adamw", "--lr", "0.001", "--steps", 50)
            losses = {way: float(row["final_loss"]) for way, row in rows.items() if row.get("final_loss")}
            if "single" in losses and len(losses) > 1:
                apart = max(abs(loss / losses["single"] - 1) for loss in losses.values())
                self.report.wanted(f"final losses of {workers} workers, {len(losses) - 1} strategies", f"{apart:.1e} from "
                                   "single's", apart <= 2e-5, "at most 2e-5")

    def backend(self):
        """PyTorch's tensors on the GPU over psring's process group, each test by itself."""
        script = self.root / "tests" / "python" / "cuda_test.py"
        library = next(self.tree.glob(f"lib*/**/{packing.LIBRARY}"))
        environment = {**self.environment, "PYTHONPATH": str(self.root / "python"), "PSRING_LIBRARY": str(library),
                       "PSRING_BIN": str(self.tree / "bin")}
        for test in tests_of(script):
            self.run(["python3", "-B", script, "-v", f"Cuda.{test}"], test.removeprefix("test_").replace("_", " "), 60,
                     lambda line: line.startswith(("Ran", "OK")) or "forward and backward" in line, environment)

    def sanitize(self):
        """Without the allocation that is to fail; for races in psring's kernels alone, not in cuBLASLt's."""
        told = self.machine.output("compute-sanitizer", "--help")
        by_name = [option for option in ("--kernel-name", "--kernel-regex", "--filter")
                   if re.search(rf"{option}(?![\w-])", told)]  # as it was named from version to version
        tools = {"memcheck": ["--report-api-errors", "no"],  # that an event is not ready is an answer
                 "racecheck": [by_name[0], "kns=psring"] if by_name else []}
        for tool, options in tools.items():
            for test in packing.TESTS[:2]:
                self.run(["compute-sanitizer", "--tool", tool, *options, "--error-exitcode", "9",
                          self.tree / "tests" / test, '~"more memory*"'], f"compute-sanitizer {tool}, {test}", 150,
                         lambda line: "ERROR SUMMARY" in line or "passed" in line or "RACECHECK SUMMARY" in line)

    def jobs(self):
        """Each test of whole jobs by itself, the longest last, so that a stop costs one of them."""
        script = self.root / "tests" / "process" / "gpu_job_test.py"
        tests = tests_of(script)
        longest = "test_all_ways_learn_alike"
        for test in [*(test for test in tests if test != longest), longest]:
            self.run(["python3", "-B", script, "-v", f"GpuJobs.{test}"], test.removeprefix("test_").replace("_", " "),
                     400 if test == longest else 120,
                     lambda line: line.startswith(("test_", "Ran", "OK")) or "skipped" in line,
                     {**self.environment, "PSRING_BIN": str(self.tree / "bin")})

    # ---------------------------------------------------------------- one after the other

    def begin(self, part):
        self.report.begin(part, self.machine.facts(self.software, self.commit))

    def run_part(self, part):
        """Whatever goes wrong in one, the others are run."""
        try:
            return getattr(self, part)()
        except FileNotFoundError as error:
            return self.refuse(part, str(error))
        except Exception as error:
            return self.refuse(part, f"{type(error).__name__}: {error}")

    def check(self, parts):
        ready = False
        try:
            self.begin("build")
            ready = self.run_part("build")
            self.begin_again("build")
            for part in parts:
                if part == "build":
                    continue
                why = NO_TIME if self.too_late() else "not run: there is nothing to run" if not ready else \
                    "" if self.machine.has_gpu else NO_GPU
                if why:
                    self.skip(part, why)
                    continue
                self.begin(part)
                self.run_part(part)
                self.report.write()
        except Ended as ended:
            self.report.write()
            print(f"gpu-check: stopped by {ended}; {self.options.report} has what was done", flush=True)
            return 128 + signal.Signals[str(ended)]
        print(f"gpu-check: {self.options.report}{': ' + ', '.join(self.failed) if self.failed else ''}")
        return 1 if self.failed else 0

    def begin_again(self, part):
        """The facts once more, now that the libraries are known."""
        self.software = self.machine.software(self.libraries)
        body = self.report.sections[part].partition("\n\n")[2]
        self.begin(part)
        self.report.say(*body.splitlines())
        self.report.write()

    def skip(self, part, why):
        self.failed.append(f"{part} ({why})")
        print(f"gpu-check: {part}: {why}", flush=True)
        if part not in self.report.sections:  # else earlier figures stay
            self.begin(part)
            self.report.say(f"### {part} ({why})", "")
            self.report.write()
