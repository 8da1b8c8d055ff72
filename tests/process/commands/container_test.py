"""The container image of Containerfile: built from a base image without a network but Debian's packages, small, without root;
and it trains. Compiling psring within the image takes many minutes: without PSRING_CONTAINER_BUILD=1 the image gets the
programs that were built here, in place of those of its build stage. PSRING_CONTAINER_ARM64 names a folder with programs for
arm64, of which an image for arm64 is made; QEMU runs it (scripts/other-systems container-arm64)."""

import array
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = BIN.parent / "container"
LIMIT = 560
MOST_MIB = 150  # of the whole image
ARM64 = os.environ.get("PSRING_CONTAINER_ARM64")
ARCHITECTURE = "arm64" if ARM64 else "amd64"


def values(model):
    """The parameters of a model.safetensors of float32 tensors."""
    header = int.from_bytes(model[:8], "little")
    return array.array("f", model[8 + header:])


class Container(ProgramTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("buildah"):
            self.skipTest("SKIPPED: buildah is not installed")
        if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
            self.skipTest("SKIPPED: needs root, and the package mmdebstrap for a base image")
        CACHE.mkdir(exist_ok=True)
        self.environment |= {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
        self.stores = ["--root", str(self.folder / "images"), "--runroot", str(self.folder / "state")]

    def call(self, *command):
        return subprocess.run(list(map(str, command)), cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT)

    def buildah(self, command, *arguments):
        result = self.call("buildah", *self.stores, command, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        return result.stdout.strip()

    def base_image(self):
        """Debian 12, from its packages: it is kept in the build folder."""
        archive = CACHE / f"debian-12-{ARCHITECTURE}.tar"
        if not archive.exists():
            result = self.call("mmdebstrap", "--variant=minbase", "--mode=root", f"--architectures={ARCHITECTURE}", "bookworm",
                               archive.with_suffix(".partial.tar"))
            if result.returncode != 0:
                self.skipTest("SKIPPED: mmdebstrap cannot get Debian's packages")
            archive.with_suffix(".partial.tar").rename(archive)
        container = self.buildah("from", "--arch", ARCHITECTURE, "scratch")
        self.buildah("add", "-q", container, archive, "/")
        self.buildah("commit", "-q", "--rm", container, "localhost/base")

    def image(self):
        """Builds the image; the second stage alone if psring is not compiled in it."""
        text = (ROOT / "Containerfile").read_text()
        context = ROOT
        if ARM64 or os.environ.get("PSRING_CONTAINER_BUILD") != "1":
            context = self.folder / "installed"
            if ARM64:
                shutil.copytree(ARM64, context / "psring", symlinks=True)
            else:
                self.install(context / "psring")
            begin, end = text.index("FROM ${BASE} AS build"), text.index("FROM scratch")
            stage = re.search(r"rm -rf (/stage/usr/local/.*)\n", text)
            for pattern in stage[1].split():
                for path in context.glob(pattern.replace("/stage/usr/local", "psring")):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            text = text[:begin] + text[end:].replace("COPY --from=build /stage/usr/local", "COPY psring")
        self.file("Containerfile", text.encode())
        self.buildah("build", "-q", "--arch", ARCHITECTURE, "--build-arg", "BASE=localhost/base",
                     "-f", self.folder / "Containerfile", "-t", "localhost/psring", context)

    def install(self, folder):
        """Installs the programs that were built here."""
        for part in ("cli", "view"):  # the programs, and the module of the live view; the rest is for developers
            result = self.call("cmake", f"-DCMAKE_INSTALL_PREFIX={folder}", "-DCMAKE_INSTALL_DO_STRIP=1", "-P",
                               BIN.parent / part / "cmake_install.cmake")
            self.assertEqual(result.returncode, 0, result.stderr)
        result = self.call(ROOT / "scripts" / "manual", "--bin", BIN, "--out", folder)
        self.assertEqual(result.returncode, 0, result.stderr)

    def check_read_only(self, mounted):
        """Any user trains in the image while its files cannot be written, as in `psring manifests`."""
        said = self.call("unshare", "--mount", "sh", "-euc", """
            mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"
            for memory in tmp runs dev; do mount -t tmpfs -o mode=1777 memory "$0/$memory"; done
            mkdir -m 1777 "$0/dev/shm"
            for each in null random urandom zero; do touch "$0/dev/$each" && mount --bind "/dev/$each" "$0/dev/$each"; done
            mount --rbind /proc "$0/proc"
            ! touch "$0/usr/a" 2>/dev/null || exit 9
            chroot --userspec=4321:4321 "$0" sh -euc '
                export PATH=/usr/local/bin:/usr/bin:/bin
                cd /runs
                psring train --strategy ddp --workers 2 --data synthetic --model mlp:16-16-4 --global-batch 12 --steps 5 --out first
                id -u'
            """, mounted)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertEqual(said.stdout.splitlines()[-1], "4321")

    def test_image(self):
        self.base_image()
        self.image()
        fields = ("Architecture", "Config.User", "Config.Entrypoint", "Config.WorkingDir")
        config = self.buildah("inspect", "--type", "image", "--format", " ".join(f"{{{{.OCIv1.{field}}}}}" for field in fields),
                              "localhost/psring")
        self.assertEqual(config, f"{ARCHITECTURE} 10001:10001 [psring] /runs")
        container = self.buildah("from", "localhost/psring")
        self.addCleanup(self.call, "buildah", *self.stores, "rm", container)
        mounted = pathlib.Path(self.buildah("mount", container))
        size = sum(path.lstat().st_size for path in mounted.rglob("*") if not path.is_symlink() and path.is_file()) >> 20
        print(f"the image has {size} MiB")
        self.assertLess(size, MOST_MIB)
        self.assertEqual(list((mounted / "usr" / "local").rglob("*.a")), [])
        self.assertTrue((mounted / "usr" / "local" / "share" / "man" / "man1" / "psring-train.1").exists())
        run = lambda *words: self.buildah("run", container, "--", *words)
        self.assertEqual(run("id", "-u"), "10001")
        self.assertRegex(run("psring", "--version"), r"^psring \d")
        run("sh", "-c", "getent hosts localhost && test -d /runs && sleep 0")  # what the pods of psring manifests call
        self.check_read_only(mounted)
        job = ["--workers", 2, "--data", "synthetic", "--model", "mlp:100-90-10", "--global-batch", 12, "--steps", 20, "--seed", 3]
        table = run("psring", "compare", "--strategies", "single,ddp,ps", *job, "--out", "/runs/compared")
        self.assertEqual(len(re.findall(r"(?m)^(ddp|ps) .* = ", table)), 2, table)
        self.assertIn("ps: 20 steps", run("psring", "train", "--strategy", "ps", *job, "--out", "/runs/first"))
        self.assert_done(self.train("--strategy", "ps", *job, "--out", "here"))
        inside = (mounted / "runs" / "first" / "model.safetensors").read_bytes()
        if ARM64:  # its vectors are of another width, so that it rounds sums differently
            pairs = list(zip(values(inside), values(self.model("here")), strict=True))
            away = max(abs(there - here) for there, here in pairs)
            print(f"after 20 steps, none of {len(pairs)} parameters differs from this processor's by more than {away:.1e}")
            self.assertLess(away, 1e-5)
        else:
            self.assertEqual(inside, self.model("here"))


class Packages(unittest.TestCase):
    def test_build_stage_has_what_a_build_needs(self):
        setup = (ROOT / "scripts" / "setup").read_text()
        needed = set(re.search(r"(?m)^demo=\($(.*?)^  # data sets$", setup, re.S)[1].split())
        self.assertIn("libzmq3-dev", needed)
        stage = re.search(r"AS build\n(.*?)WORKDIR", (ROOT / "Containerfile").read_text(), re.S)[1]
        self.assertEqual(needed - set(stage.split()), set())


if __name__ == "__main__":
    unittest.main()
