"""What a machine has: the GPU, its driver, the toolkit, libraries of NVIDIA's, PyTorch."""

import contextlib
import datetime
import os
import pathlib
import re
import shutil
import subprocess

from .command import end_with_parent

QUERY = ("name", "memory.total", "driver_version", "power.limit", "clocks.max.sm", "clocks.max.mem", "clocks.sm",
         "temperature.gpu")
VERSIONS = {"libcublasLt.so": "library.cublasLtGetVersion.restype = ctypes.c_size_t; print(library.cublasLtGetVersion())",
            "libcudnn.so": "library.cudnnGetVersion.restype = ctypes.c_size_t; print(library.cudnnGetVersion())",
            "libnccl.so": "found = ctypes.c_int(); library.ncclGetVersion(ctypes.byref(found)); print(found.value)"}


def output(command, environment=None, seconds=20):
    """Of a program that says something about this machine; nothing where it is not there, fails, or hangs."""
    try:
        done = subprocess.run([str(each) for each in command], text=True, capture_output=True, errors="replace",
                              env=environment, timeout=seconds, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def folders_of(*patterns):
    return [found for pattern in patterns for found in sorted(pathlib.Path("/").glob(pattern.lstrip("/")))]


class Machine:
    def __init__(self, root):
        self.root = root
        self.environment = dict(os.environ)
        self.add_paths("PATH", "/usr/local/nvidia/bin")
        if not any("libcuda.so.1" in line for line in output(["ldconfig", "-p"]).splitlines()):
            self.add_paths("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")
        self.toolkit = self.find_toolkit()
        self.has_gpu = "GPU" in self.output("nvidia-smi", "-L") or pathlib.Path("/dev/nvidiactl").exists()

    def add_paths(self, name, *folders):
        there = [str(folder) for folder in folders if pathlib.Path(folder).is_dir()]
        old = [self.environment[name]] if self.environment.get(name) else []
        if there:
            self.environment[name] = ":".join([*old, *there])

    def output(self, *command):
        return output(command, self.environment)

    def find_toolkit(self):
        """Its folder, found as PsringCuda.cmake finds it; None where there is none."""
        folders = [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
        path = os.pathsep.join([*(f"{folder}/bin" for folder in folders), self.environment["PATH"], "/usr/local/cuda/bin"])
        nvcc = shutil.which("nvcc", path=path)
        if nvcc is None:
            return None
        programs = pathlib.Path(nvcc).resolve().parent
        self.environment["PATH"] = f"{path}{os.pathsep}{programs}"
        return programs.parent

    def wheels(self):
        """Folders of the libraries that PyTorch's Python has from NVIDIA."""
        paths = self.output("python3", "-c", "import nvidia; print(*nvidia.__path__, sep=chr(10))").splitlines()
        return [pathlib.Path(path) for path in paths]

    def find_library(self, name):
        """The file of a shared library: PyTorch's first, so that psring is measured on the same cuBLAS; then the
        toolkit's, then the system's."""
        folders = [folder for wheel in self.wheels() for folder in sorted(wheel.glob("*/lib"))]
        folders += [self.toolkit / "lib64", self.toolkit / "lib"] if self.toolkit else []
        folders += folders_of("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/x86_64-linux-gnu",
                              "/usr/lib64")
        folders += [pathlib.Path(each) for each in self.environment.get("LD_LIBRARY_PATH", "").split(":") if each]
        for folder in folders:
            if (folder / name).exists():
                return folder / name
        others = sorted({str(found) for folder in folders for found in folder.glob(name.split(".so")[0] + ".so.*")})
        raise FileNotFoundError(f"{name} is missing: neither Python's packages, nor the toolkit, nor the system has it"
                                + (f"; there is {', '.join(others)}: build on this machine instead" if others else ""))

    def version(self, library):
        """A number, as the library tells it."""
        ask = next(ask for name, ask in VERSIONS.items() if library.name.startswith(name))
        code = f"import ctypes; library = ctypes.CDLL({str(library)!r}); {ask}"
        return self.output("python3", "-c", code).strip() or "unknown"

    def capability(self):
        """The GPU's architecture, as CMake calls it."""
        return self.output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").partition("\n")[0].replace(".", "")

    def gpu(self):
        """What the driver says of it now, by name of QUERY; nothing where it says nothing."""
        told = self.output("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader").partition("\n")[0]
        values = told.split(", ")
        return dict(zip(QUERY, values)) if len(values) == len(QUERY) else {}

    def software(self, libraries):
        versions = [f"{library.name} {self.version(library)} ({library.parent})" for library in libraries]
        nvcc = re.search(r"release \S+ (\S+)", self.output("nvcc", "--version"))
        torch = self.output("python3", "-c", "import importlib.metadata as m; print(m.version('torch'))").strip()
        return ", ".join([f"nvcc {nvcc[1].rstrip(',') if nvcc else 'none'}", *versions, f"PyTorch {torch or 'none'}"])

    def facts(self, software, commit):
        """Lines that say what a section's figures are of."""
        gpu = self.gpu()
        yield "GPU: " + (f"{gpu['name']}, {gpu['memory.total']}, driver {gpu['driver_version']}" if gpu else "unknown")
        if gpu:
            yield (f"power limit {gpu['power.limit']}, clocks at most {gpu['clocks.max.sm']} (memory "
                   f"{gpu['clocks.max.mem']}), at the start {gpu['clocks.sm']} and {gpu['temperature.gpu']} °C")
        yield software
        model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        yield f"{model[1] if model else 'unknown processor'}, {os.cpu_count()} logical processors"
        yield f"psring {commit}, {datetime.datetime.now().isoformat(' ', 'minutes')}"

    @contextlib.contextmanager
    def watched(self, file):
        """Writes the GPU's clock, power and temperature to a file, twice a second."""
        try:
            with open(file, "wb") as to:
                process = subprocess.Popen(
                    ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits",
                     "-lms", "500"], stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.DEVNULL, env=self.environment,
                    preexec_fn=end_with_parent)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            process.kill()
            process.wait()


def seen(file):
    """One line on what `watched` wrote, of the half of the samples with the most power: those in which the GPU works."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else []:
        with contextlib.suppress(ValueError):
            rows.append([float(each) for each in line.split(", ")])
    rows = sorted((row for row in rows if len(row) == 3), key=lambda row: row[1])
    rows = rows[len(rows) // 2:]
    if not rows:
        return ""
    clocks, power, heat = zip(*rows)
    return (f"While it worked: clock {min(clocks):.0f} to {max(clocks):.0f} MHz, {min(power):.0f} to {max(power):.0f} W, "
            f"at most {max(heat):.0f} °C.")
