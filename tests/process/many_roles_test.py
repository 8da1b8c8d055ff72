"""More roles on one host than it has processors: all join, and no log speaks of a key that none lacks."""

import json
import resource
import unittest

from support import ProgramTest


class ManyRoles(ProgramTest):
    def join(self, strategy, workers, *arguments, **options):
        result = self.train("--strategy", strategy, "--workers", workers, "--global-batch", workers, "--data", "synthetic", "--model",
                            "mlp:16-16-4", "--steps", 1, "--out", "run", *arguments, **options)
        self.assert_done(result)
        self.assertEqual(json.loads((self.folder / "run" / "summary.json").read_text())["refused"], 0)
        for log in (self.folder / "run" / "logs").glob("*.log"):
            self.assertNotIn("key", log.read_text(), log)

    def test_shared_memory(self):
        self.join("ps", 80, "--servers", 2)

    def test_sockets(self):
        self.join("ps", 80, "--servers", 2, "--transport", "tcp")

    def test_a_link_of_several_streams(self):
        """Each of the last workers opens 4 streams to each of the first ones, all at once."""
        self.join("ddp", 40, "--transport", "tcp", "--streams", 4, "--algorithm", "exchange")

    def test_a_low_soft_limit_of_open_files(self):
        """The programs raise it."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        self.join("ps", 70, "--servers", 1)


if __name__ == "__main__":
    unittest.main()
