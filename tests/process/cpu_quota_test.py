"""A container's CPU quota: whatever asks for the number of processors counts those that the quota pays for."""

import json
import pathlib
import unittest
import uuid

from support import TINY, ProgramTest

GROUPS = pathlib.Path("/sys/fs/cgroup")


class Quota(ProgramTest):
    def group(self, processors):
        """A control group with this quota, of version 1 or 2."""
        parent = next((folder for folder in (GROUPS / "cpu", GROUPS) if (folder / "cgroup.procs").exists()), None)
        group = parent / f"quota-{uuid.uuid4().hex}" if parent else None
        try:
            group.mkdir()
            self.addCleanup(group.rmdir)
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text(str(round(processors * 100000)))
            else:
                (group / "cpu.max").write_text(f"{round(processors * 100000)} 100000")
        except (AttributeError, OSError) as error:
            self.skipTest(f"SKIPPED: cannot make a control group with a CPU quota ({error})")
        return group

    def run_within(self, group, *arguments):
        prefix = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$0" "$@"']
        return self.run_program("psring", *arguments, prefix=prefix)

    def test_compare(self):
        """Two workers on the time of one processor cannot be compared with others."""
        group = self.group(1.5)
        result = self.run_within(group, "compare", *TINY, "--steps", 3, "--strategies", "ddp", "--workers", 2, "--out", "run")
        self.assert_done(result)
        [row] = json.loads((self.folder / "run" / "compare.json").read_text())["rows"]
        self.assertEqual(row["figures"]["processors"], 1, row)
        self.assertIn("2 threads on 1 processor", " ".join(result.out.split()))

    def test_doctor(self):
        result = self.run_within(self.group(1), "doctor", "--processes", 2)
        self.assertIn("for the time of 1 processors", result.out)


if __name__ == "__main__":
    unittest.main()
