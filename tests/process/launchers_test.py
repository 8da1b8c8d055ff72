"""Processes that see the variables of a launcher: they join as its tasks, or refuse; none starts a job of its own in silence."""

import signal
import unittest

from support import TINY, ProgramTest

JOB = [*TINY, "--strategy", "ddp", "--optimizer", "adam", "--lr", "0.01", "--steps", 20]

# The variables by which launchers tell a task its place: rank, number of tasks, rank and number on this host. {0}: the rank.
LAUNCHERS = {
    "flux": {"FLUX_TASK_RANK": "{0}", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "{0}", "FLUX_JOB_NNODES": "1", "FLUX_JOB_ID": "f2C"},
    "PALS": {"PALS_RANKID": "{0}", "PMI_SIZE": "2", "PALS_LOCAL_RANKID": "{0}", "PALS_LOCAL_SIZE": "2", "PALS_APID": "a-1"},
    "MVAPICH": {f"MV2_COMM_WORLD_{name}": value for name, value in
                {"RANK": "{0}", "SIZE": "2", "LOCAL_RANK": "{0}", "LOCAL_SIZE": "2"}.items()},
    "horovodrun": {f"HOROVOD_{name}": value for name, value in
                   {"RANK": "{0}", "SIZE": "2", "LOCAL_RANK": "{0}", "LOCAL_SIZE": "2"}.items()},
    "torchrun": {"RANK": "{0}", "WORLD_SIZE": "2", "LOCAL_RANK": "{0}", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
                 "TORCHELASTIC_USE_AGENT_STORE": "True"},
}
ALONE = ("PMI_RANK", "PMI_ID", "PMI_SIZE", "PMI_FD", "MPI_LOCALNRANKS", "PALS_RANKID", "PALS_SIZE", "FLUX_TASK_RANK", "ALPS_APP_PE",
         "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE", "OMPI_COMM_WORLD_SIZE", "HOROVOD_RANK",
         "HOROVOD_SIZE", "DMLC_ROLE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID")


class Launchers(ProgramTest):
    def test_tasks_join_one_job(self):
        self.assert_done(self.train(*JOB, "--workers", 2, "--out", "one"))
        for name, variables in LAUNCHERS.items():
            with self.subTest(name):
                tasks = [self.start("psring", "train", *JOB, "--out", name,
                                    env={variable: value.format(rank) for variable, value in variables.items()}) for rank in "01"]
                for task in tasks:
                    self.assert_done(self.finish(task))
                self.assertEqual(self.model(name), self.model("one"))

    def tasks(self, launcher, out, job=JOB, prefix=(), **variables):
        return [self.start("psring", "train", *job, "--out", out, prefix=prefix,
                           env={name: value.format(rank) for name, value in {**LAUNCHERS[launcher], **variables}.items()})
                for rank in "01"]

    def test_tasks_in_scripts(self):
        """Each task has a shell of its own as parent: the launcher is above both."""
        self.assert_done(self.train(*JOB, "--workers", 2, "--out", "one"))
        for task in self.tasks("torchrun", "scripts", prefix=["sh", "-c", '"$@"; exit $?', "sh"]):
            self.assert_done(self.finish(task))
        self.assertEqual(self.model("scripts"), self.model("one"))

    def test_start_after_a_killed_task_0(self):
        """What task 0 has left behind is of another start."""
        long = [*JOB[:-1], 1000000, "--heartbeat-timeout", 1]
        first, second = self.tasks("torchrun", "first", long)
        self.until_trains(first, "first")
        first.kill()
        first.wait()
        second.send_signal(signal.SIGTERM)
        result = self.finish(second)
        self.assertNotEqual(result.status, 0)
        self.assertIn("psring: task 1: ", result.err)
        self.assertLess(result.seconds, 15)
        for task in self.tasks("torchrun", "again", TORCHELASTIC_RESTART_COUNT="1"):
            self.assert_done(self.finish(task))

    def test_tasks_of_one_host_need_no_key(self):
        """psring.run tells of a store that rank 0 makes; psring's tasks of one host meet in the folder."""
        for task in self.tasks("torchrun", "store", TORCHELASTIC_USE_AGENT_STORE="False"):
            self.assert_done(self.finish(task))

    def test_a_variable_without_the_others(self):
        commands = {"train": JOB, "compare": [*TINY, "--strategies", "ddp", "--steps", 1]}
        for variable in ALONE:
            for command, words in commands.items():
                with self.subTest(variable, command=command):
                    result = self.run_program("psring", command, *words, "--out", "refused", env={variable: "3"})
                    self.assert_refused(result, 2, f"{variable}=3 is set", "--launcher none")
                    self.assertFalse((self.folder / "refused").exists())
        self.assert_done(self.train(*JOB, "--launcher", "none", "--out", "own", env={"PMI_RANK": "3"}))

    def test_a_variable_that_is_no_number(self):
        for text in ("", "x", "-1"):
            with self.subTest(text):
                self.assert_refused(self.train(*JOB, env={"RANK": text, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}), 2,
                                    f"RANK={text}: expected a whole number", "--launcher none")

    def test_other_commands_read_no_variable(self):
        self.assert_done(self.run_program("psring", "memory", "--parameters", "7B", env={"RANK": "x", "WORLD_SIZE": "x", "SLURM_JOB_ID": "x"}))

    def test_compare_is_no_task(self):
        env = {variable: value.format(1) for variable, value in LAUNCHERS["flux"].items()}
        compare = ["compare", *TINY, "--strategies", "ddp", "--steps", 1, "--out"]
        self.assert_refused(self.run_program("psring", *compare, "a", env=env), 2, "2 tasks of flux run", "--launcher none")
        self.assert_done(self.run_program("psring", *compare, "b", "--launcher", "none", env=env))


if __name__ == "__main__":
    unittest.main()
