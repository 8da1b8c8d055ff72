"""What a machine without a network is given: a tree that was built elsewhere, or the packages to build one."""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ARCHIVE = "psring-gpu.tar.xz"
ARCHIVE_MIB = 48  # rented machines take some 64 MiB, the sources among them
PROGRAMS = ("psring", "psring-server", "psring-worker", "psring-bench")
TESTS = ("cuda_gpu_test", "device_codec_gpu_test", "device_training_gpu_test")
MODULE = "libpsring_cuda.so"
LIBRARY = "libpsring_c.so"  # what psring's Python package loads
# Every machine has these, or they have to fit its driver and its PyTorch.
LEFT_THERE = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\+\+|gcc_s)\.so|"
                        r"lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc)\b)")
PACKAGES = ["libzmq3-dev", "cppzmq-dev", "libsodium-dev", "libcereal-dev", "libeigen3-dev", "libdnnl-dev", "libabsl-dev",
            "libcli11-dev", "libfmt-dev", "nlohmann-json3-dev", "zlib1g-dev", "catch2"]
# Packages that every machine with a compiler has, or that only libraries without use for psring need.
LEFT_OUT = re.compile(r"^(gcc-|libc6|libc-dev|libgcc|libstdc|linux-libc|libcrypt|icu|libicu|libxml2|krb5-|libkrb5-dev|"
                      r"libgssrpc|libkadm|libkdb|libnsl|libtirpc|rpcsvc|comerr|libgomp|liblzma|pkg-config$)")


def commit_of(root):
    told = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=root, text=True,
                          capture_output=True)
    return told.stdout.strip() or "of an unknown commit"


def shared_libraries(files):
    """What the loader finds for them, but for what is left there, by name."""
    found = {}
    for line in subprocess.run(["ldd", *files], text=True, capture_output=True, check=True).stdout.splitlines():
        match = re.match(r"\s+(\S+) => (/\S+)", line)
        if match and not LEFT_THERE.match(match[1]):
            found[match[1]] = pathlib.Path(match[2])
    return found


def pack(build, folder, root, architecture):
    """Programs, module and tests of a build folder, stripped, with the libraries that they need but for NVIDIA's."""
    module, library = (next(build.glob(f"lib*/**/{name}"), None) for name in (MODULE, LIBRARY))
    files = [*(build / "bin" / name for name in PROGRAMS), *(build / "tests" / name for name in TESTS), module, library]
    missing = [str(file) for file in files if file is None or not file.exists()]
    if missing:
        sys.exit(f"gpu-check: {build}: not built with CUDA and tests: {', '.join(missing)}")
    manifest = {"commit": commit_of(root), "architecture": architecture, "needs": nvidia_libraries(module)}
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / ARCHIVE
    with tempfile.TemporaryDirectory(dir=folder) as scratch, tarfile.open(archive, "w:xz", preset=0) as tar:
        def add(file, name):
            stripped = pathlib.Path(scratch) / "stripped"
            shutil.copy(file, stripped)
            subprocess.run(["strip", "--strip-unneeded", stripped], check=True)
            tar.add(stripped, name)

        for file in files:
            add(file, file.relative_to(build))
        for name, file in shared_libraries(files).items():
            add(file, f"libraries/{name}")
        text = json.dumps(manifest, indent=2).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    size = archive.stat().st_size / 2**20
    print(f"gpu-check: {archive}: {size:.1f} MiB, psring {manifest['commit']} for {architecture}; "
          f"needs there: {', '.join(manifest['needs'])}")
    if size > ARCHIVE_MIB:
        sys.exit(f"gpu-check: that is more than the {ARCHIVE_MIB} MiB that can be carried along")


def nvidia_libraries(module):
    told = subprocess.run(["readelf", "-d", module], text=True, capture_output=True, check=True).stdout
    return [name for name in re.findall(r"NEEDED.*\[(\S+)\]", told) if re.match(r"lib(cublas|cudnn|nccl|cuda)", name)]


def unpack(folder, to):
    """The tree of `pack`, again if it is another one; its manifest."""
    archive = folder / ARCHIVE
    if not archive.exists():
        raise FileNotFoundError(f"{archive} is missing: make it where the CUDA toolkit is, with scripts/gpu-check --pack "
                                f"{folder}, and carry that folder along")
    stamp = f"{archive.stat().st_size} {archive.stat().st_mtime_ns}"
    stamped = to / "stamp"
    if not stamped.exists() or stamped.read_text() != stamp:
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            tar.extractall(to)
        stamped.write_text(stamp)
    return json.loads((to / "manifest.json").read_text())


def bring(folder):
    """Fills a folder with PACKAGES and what they need: on a Debian 12 with a network."""
    folder.mkdir(parents=True, exist_ok=True)
    depends = subprocess.run(
        ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
         "--no-replaces", "--no-enhances", *PACKAGES], check=True, text=True, capture_output=True).stdout
    names = sorted({line for line in depends.splitlines() if re.match(r"^\w", line) and not LEFT_OUT.match(line)})
    subprocess.run(["apt-get", "download", *names], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    size = sum(file.stat().st_size for file in folder.glob("*.deb"))
    print(f"gpu-check: {len(names)} packages, {size / 2**20:.0f} MiB, in {folder}")


def unpack_packages(folder, prefix):
    """The packages, in a prefix of their own; links to absolute places lead there, too."""
    archives = sorted(folder.glob("*.deb"))
    if not archives:
        raise FileNotFoundError(f"{folder}: no packages; fill it with scripts/gpu-check --bring on a Debian 12")
    shutil.rmtree(prefix, ignore_errors=True)
    (prefix / "usr" / "lib").mkdir(parents=True)
    (prefix / "lib").symlink_to("usr/lib")
    for archive in archives:
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", prefix], input=tar, check=True)
    for link in prefix.rglob("*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = prefix / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(target)
