"""psring doctor: on this host as it is, under limits that make checks fail, and two of them against each other."""

import json
import re
import unittest

from support import ProgramTest

LINK = ["link", "link delay", "clocks"]


class Doctor(ProgramTest):
    def examined(self, *arguments, **options):
        """What it says, as it stands in --json, which agrees with what it prints and how it ends."""
        result = self.run_program("psring", "doctor", "--json", "doctor.json", *arguments, **options)
        self.assertEqual(result.err, "", result)
        said = json.loads((self.folder / "doctor.json").read_text())
        *lines, conclusion = result.out.splitlines()
        self.assertEqual(len(lines), len(said["checks"]), result.out)
        for line, check in zip(lines, said["checks"]):
            cure = f"  -> {check['cure']}" if check["cure"] else ""
            self.assertEqual(line, f"{check['level']:<5} {check['what']:<19} {check['figure']}{cure}")
            self.assertEqual(check["level"] == "ok", not check["cure"], line)
        failed = sum(check["level"] == "FAIL" for check in said["checks"])
        self.assertEqual(result.status, 3 if failed else 0, result.out)
        self.assertEqual(said["status"], result.status)
        self.assertTrue(conclusion.startswith(f"{failed} of {len(lines)} checks fail" if failed else "nothing "), conclusion)
        return {check["what"]: check for check in said["checks"]}

    def limited(self, limit):
        return ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"']

    def listen(self, *arguments):
        doctor = self.start("psring", "doctor", "--listen", "127.0.0.1:0", "--key", "job.key", *arguments)
        return doctor, re.match(r"waiting at (\S+) for psring doctor --peer", doctor.stdout.readline()).group(1)

    def test_plain(self):
        result = self.run_program("psring", "doctor")
        self.assertEqual(result.err, "", result)
        names = [line[6:25].rstrip() for line in result.out.splitlines()[:-1]]
        checks = self.examined()
        self.assertEqual(names, list(checks))
        # These tests themselves need these checks to be ok.
        for name in ("loopback port", "shared memory", "vector units", "libraries", "CURVE"):
            self.assertEqual(checks[name]["level"], "ok", checks[name])
        self.assertIn("lo 127.0.0.1", checks["interfaces"]["figure"])
        self.assertGreater(checks["memory speed"]["values"]["one_thread"], 1e6)
        self.assertGreater(checks["loopback speed"]["values"]["sending_bytes_per_s"], 1e6)
        self.assertNotIn("link", checks)

    def test_limits(self):
        checks = self.examined(prefix=self.limited("-n 100"))
        self.assertEqual(checks["open files"]["level"], "FAIL")
        self.assertTrue(checks["open files"]["cure"].startswith("raise the hard limit of 100 "), checks["open files"])
        checks = self.examined("--processes", 6, prefix=self.limited("-n 100"))
        self.assertEqual(checks["open files"]["level"], "ok")
        checks = self.examined(prefix=self.limited("-Sn 100"))  # which the program raises
        self.assertEqual(checks["open files"]["level"], "ok")
        # Enough for --json; a larger file would be the end of who does not expect it.
        checks = self.examined(prefix=self.limited("-f 1000"))
        for name in ("shared memory", "size limits"):
            self.assertEqual(checks[name]["level"], "FAIL", checks[name])

    def test_without_units_for_bf16(self):
        """Products in bf16 are then those in f32, here and in training."""
        without = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
        self.assertNotEqual(self.examined(env=without)["matrix products"]["level"], "FAIL")
        self.assert_done(self.train("--strategy", "single", "--data", "synthetic", "--model", "mlp:128-128-128",
                                    "--global-batch", 128, "--steps", 2, "--precision", "bf16", "--out", "bf16",
                                    env=without))

    def test_two(self):
        self.key()
        answering, endpoint = self.listen()
        checks = self.examined("--peer", endpoint, "--key", "job.key", "--fit", "fit.json")
        self.assertEqual(list(checks)[:3], LINK)
        lines = json.loads((self.folder / "fit.json").read_text())["lines"]
        self.assertEqual(lines["link.peer"]["points"], 5)
        slower = min(checks["link"]["values"][way] for way in ("sending_bytes_per_s", "receiving_bytes_per_s"))
        self.assertAlmostEqual(lines["rate.peer"]["per_unit_s"] * slower, 1, places=3)
        self.assertIn(endpoint, checks["link"]["figure"])
        self.assertLess(abs(checks["clocks"]["values"]["offset_s"]), 0.5)  # it is the same one
        self.assertIn("towards 127.0.0.1: lo 127.0.0.1", checks["interfaces"]["figure"])
        result = self.finish(answering)
        self.assert_done(result)
        self.assertRegex(result.out, r"answered tcp 127\.0\.0\.1:\d+")

    def test_wrong_key(self):
        self.key()
        self.key("other.key")
        answering, endpoint = self.listen()
        result = self.run_program("psring", "doctor", "--peer", endpoint, "--key", "other.key")
        self.assert_refused(result, 5, f"--peer {endpoint}", "key")
        self.assertEqual(result.out, "")
        self.examined("--peer", endpoint, "--key", "job.key")  # it has waited on
        self.assert_done(self.finish(answering))

    def test_nobody(self):
        self.key()
        answering, endpoint = self.listen("--join-timeout", "0.1")
        self.assert_refused(self.finish(answering), 4, endpoint, "in time")
        result = self.run_program("psring", "doctor", "--peer", endpoint, "--key", "job.key")
        self.assert_refused(result, 4, f"--peer {endpoint}", f"psring doctor --listen {endpoint}")

    def test_usage(self):
        self.key()
        key = ["--key", "job.key"]
        for arguments, word in ((["--peer", "127.0.0.1:7000"], "--key"), (["--listen", "0.0.0.0:0"], "--key"),
                                (key, "--key"), ([*key, "--peer", "a:1", "--listen", "b:1"], "--listen"),
                                ([*key, "--peer", "nonsense"], "--peer"), (["--processes", 0], "--processes"),
                                (["--fit", "fit.json"], "--fit"),
                                ([*key, "--listen", "127.0.0.1:0", "--json", "x"], "--json"),
                                ([*key, "--listen", "127.0.0.1:0", "--join-timeout", 0], "--join-timeout")):
            with self.subTest(arguments):
                self.assert_refused(self.run_program("psring", "doctor", *arguments), 2, word)
        _, endpoint = self.listen()
        self.assert_refused(self.run_program("psring", "doctor", *key, "--listen", endpoint), 3, "cannot listen",
                            endpoint.split(":")[1])
        self.end_all()


if __name__ == "__main__":
    unittest.main()
