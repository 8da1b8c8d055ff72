"""Options of a job whose workers are programs of their own: each has an effect, or is refused by name."""

import unittest

import psring
from psring._coordinator import Coordinator

# One value of each option that only psring's own trainer uses, other than the default.
REFUSED = [
    "--model mlp:4-2", "--data synthetic", "--accumulate-at owner", "--accumulate 2", "--eval-every 3", "--eval-samples 5",
    "--shuffle none", "--freeze 0", "--init x.safetensors", "--compute sleep:5ms", "--precision bf16", "--comm-dtype bf16",
    "--loss-scale 4", "--activation-checkpointing unit", "--units tensor", "--bucket 1K", "--bucket-order forward",
    "--overlap off", "--device cuda", "--cuda-graphs off", "--threads 2", "--max-restarts 1", "--trace on",
    "--live 127.0.0.1:0", "--tensorboard", "--fault kill:worker:0@step=3", "--fault slow:worker:0=4x", "--elastic 1:1",
    "--table-lr 0.5", "--table-type bf16", "--table-admit 2", "--table-ttl 5", "--table-rows 4096", "--table-sweep 3",
    "--table-consistency asp", "--table-lookahead 1", "--table-cache 1M", "--table-compress bf16", "--table rows:lr=1",
]
# The same for options that servers use, in jobs without servers.
WITHOUT_SERVERS = [
    "--optimizer adamw", "--lr 0.5", "--optimizer momentum", "--weight-decay 0.1", "--clip-norm 0.5",
    "--schedule cosine", "--compress int8", "--checkpoint-every 2", "--table-optimizer adagrad",
]
TAKEN = ["--heartbeat-timeout 5", "--op-timeout 60", "--join-timeout 60", "--transport tcp", "--encrypt on", "--algorithm ring",
         "--link 1gbit", "--seed 3", "--fault kill:worker:0@time=600s"]


def said(options):
    """What joining a job of one worker with these options says, in one line."""
    try:
        coordinator = Coordinator(1, options=options.split())
    except psring.Error as error:
        return str(error)
    try:
        with psring.join(coordinator.endpoint, coordinator.key_file):
            return ""
    except psring.Error as error:
        return str(error)
    finally:
        coordinator.abandon()


class Options(unittest.TestCase):
    def test_options_of_the_trainer_are_refused(self):
        for options in REFUSED + WITHOUT_SERVERS:
            with self.subTest(options):
                line = said(options)
                self.assertIn(options.split()[0], line)
                self.assertEqual(len(line.splitlines()), 1, line)

    def test_options_with_an_effect_are_taken(self):
        for options in TAKEN:
            with self.subTest(options):
                self.assertEqual(said(options), "")


if __name__ == "__main__":
    unittest.main()
