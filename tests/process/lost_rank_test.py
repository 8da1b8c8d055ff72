"""Ranks that are lost in the middle of a collective, or call another one than the rest: every survivor says who, in
what, and its number, in bounded time."""

import os
import signal
import unittest

from support import RANKS, TINY, ProgramTest, until

RANK = os.environ["PSRING_COLLECTIVES_RANK"]
LOST, USAGE = 4, 2
SILENCE = 2.0  # seconds of --heartbeat-timeout
BOUND = 2 * SILENCE + 10  # with the graces in which processes may end by themselves
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "recv", "reduce", "gather", "scatter",
               "all_to_all")


class LostRank(ProgramTest):
    def job(self, way, *arguments, ranks=3):
        """A coordinator and ranks of the test's own program."""
        coordinator = self.start("psring", "coordinator", "--strategy", "ddp", *TINY, "--workers", ranks, "--steps", 1, "--key",
                                 "job.key", "--transport", way, "--heartbeat-timeout", SILENCE)
        endpoint = coordinator.stdout.readline().split()[2].rstrip(":")
        return coordinator, [self.start(RANK, endpoint, "job.key", *arguments) for _ in range(ranks)]

    def test_who_ends_first_is_not_lost(self):
        """A rank may be through with the last barrier while others still wait for a third one's message."""
        self.key()
        for way in ("tcp", "shm"):
            for _ in range(6):
                coordinator, ranks = self.job(way, "time", 64, 2, ranks=12)
                for process in (*ranks, coordinator):
                    result = self.finish(process, BOUND)
                    self.assertEqual((result.status, result.err), (0, ""), result)

    def end_stopped(self, ranks):
        for pid in (rank.pid for rank in ranks if rank.poll() is None):
            os.kill(pid, signal.SIGKILL)

    def test_lost(self):
        self.key()
        for way in ("shm", "tcp"):
            for signal_number in (signal.SIGKILL, signal.SIGSTOP):
                jobs = {name: self.job(way, "hit", name, signal_number.value) for name in COLLECTIVES}
                for name, (coordinator, ranks) in jobs.items():
                    with self.subTest(f"{signal_number.name} in {name} over {way}"):
                        self.assertEqual(self.finish(coordinator, BOUND).status, LOST)
                        ended = 3 if signal_number == signal.SIGKILL else 2
                        until(lambda: sum(rank.poll() is not None for rank in ranks) >= ended, "survivors hang", BOUND)
                        self.end_stopped(ranks)
                        results = [self.finish(rank) for rank in ranks]
                        survivors = [result for result in results if result.status != -signal.SIGKILL]
                        self.assertEqual(len(survivors), 2, results)
                        for result in survivors:
                            # The first cause is everybody's: it is one survivor's, and names the lost one.
                            self.assert_refused(result, LOST, "worker 1")
                            self.assertRegex(result.err, rf"\[ring\] rank \d: in \w+ #\d+.*, waiting for {RANKS}: ")
                self.assert_nothing_left()

    def test_interrupted(self):
        """A program of a user's does not say when it is between two steps: the first signal ends its job at once."""
        def ticks(process):
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
                return int(file.read().rsplit(")", 1)[1].split()[11])

        self.key()
        coordinator, ranks = self.job("shm", "time", 1 << 20, 100000000)
        until(lambda: all(ticks(rank) > 30 for rank in ranks), "no rank computes")
        coordinator.send_signal(signal.SIGTERM)
        result = self.finish(coordinator, BOUND)
        self.assertEqual(result.err, "psring: interrupted\n")
        self.assertEqual(result.status, 128 + signal.SIGTERM)
        for rank in ranks:
            self.assert_refused(self.finish(rank, BOUND), LOST, "interrupted")

    def test_different_calls(self):
        self.key()
        for way in ("shm", "tcp"):
            jobs = {(name, other): self.job(way, "differ", name, other)
                    for name, other in (("all_reduce", "reduce_scatter"), ("broadcast", "all_gather"), ("barrier", "all_reduce"))}
            for (name, other), (coordinator, ranks) in jobs.items():
                with self.subTest(f"{other} instead of {name} over {way}"):
                    for result in [self.finish(rank, BOUND) for rank in ranks]:
                        self.assert_refused(result, USAGE, "#17", name, other, "rank 1")
                    self.finish(coordinator, BOUND)


if __name__ == "__main__":
    unittest.main()
