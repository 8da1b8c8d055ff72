"""psring manifests --kubernetes: objects that a schema accepts, with the rules of a careful cluster; and their commands, which
are run here as Kubernetes would: a pod that is lost is replaced, and the job goes on."""

import base64
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from support import BIN, TINY, ProgramTest, free_port, until

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build" / "pypi" / "bin" / "python"  # with the package kubernetes-validate
IMAGE = "registry.example.com/psring:0.1.0"
REQUIRED = {"--image": IMAGE, "--runs-claim": "runs"}
JOB = [*TINY, "--workers", 3, "--servers", 2, "--steps", 20]


def pods_of(documents):
    """The specifications of pods by the name of their container."""
    pods = {}
    for document in documents:
        if document["kind"] == "JobSet":
            jobs = [job["template"] for job in document["spec"]["replicatedJobs"]]
        else:
            jobs = [document] if document["kind"] == "Job" else []
        for job in jobs:
            pod = job["spec"]["template"]["spec"]
            pods[pod["containers"][0]["name"]] = {**pod, "job": job["spec"]}
    return pods


def manifests(*arguments):
    """A command line; an option of `arguments` takes the place of a standard one."""
    words = ["manifests", "--kubernetes"]
    for flag, value in REQUIRED.items():
        words += [] if flag in arguments else [flag, value]
    return [*words, *arguments]


class ManifestsTest(ProgramTest):
    def setUp(self):
        super().setUp()
        if yaml is None:
            self.skipTest("SKIPPED: the package python3-yaml is not installed")

    def documents(self, *arguments):
        result = self.run_program("psring", *manifests(*arguments))
        self.assert_done(result)
        return list(yaml.safe_load_all(result.out))


class Objects(ManifestsTest):
    def test_kinds(self):
        documents = self.documents("--name", "mlp", "--namespace", "training", *JOB)
        self.assertEqual([(each["kind"], each["metadata"]["name"]) for each in documents],
                         [("Secret", "mlp-key"), ("Service", "mlp"), ("Job", "mlp-coordinator"), ("Job", "mlp-server"),
                          ("Job", "mlp-worker")])
        self.assertEqual({each["metadata"]["namespace"] for each in documents}, {"training"})
        job_set = self.documents("--jobset", *JOB)
        self.assertEqual([each["kind"] for each in job_set], ["Secret", "JobSet"])
        self.assertEqual([job["name"] for job in job_set[1]["spec"]["replicatedJobs"]], ["coordinator", "server", "worker"])
        self.assertEqual(job_set[1]["spec"]["successPolicy"], {"operator": "All", "targetReplicatedJobs": ["coordinator"]})
        self.assertEqual([each["kind"] for each in self.documents(*TINY, "--strategy", "ddp", "--steps", 3)],
                         ["Secret", "Service", "Job", "Job"])
        replicated = pods_of(self.documents(*JOB, "--replicas", 1))
        self.assertEqual([replicated[name]["job"]["completions"] for name in ("server", "worker")], [4, 3])
        colocated = pods_of(self.documents(*TINY, "--strategy", "ps-colocated", "--steps", 3))
        self.assertEqual(sorted(colocated), ["coordinator", "worker"])

    def test_careful(self):
        """No rights, no writable root, no account; the key is a file, and nothing else has its text."""
        for kind in ([], ["--jobset"]):
            result = self.run_program("psring", *manifests(*kind, "--data-claim", "data", *JOB))
            documents = list(yaml.safe_load_all(result.out))
            key = base64.b64decode(documents[0]["data"]["job.key"]).decode()
            self.assertRegex(key, r"^[0-9a-f]{64}\n$")
            self.assertNotIn(key.strip(), result.out)
            pods = pods_of(documents)
            self.assertEqual(sorted(pods), ["coordinator", "server", "worker"])
            for name, pod in pods.items():
                self.assertEqual(pod["restartPolicy"], "Never")
                self.assertFalse(pod["automountServiceAccountToken"])
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertGreater(pod["securityContext"]["runAsUser"], 0)
                self.assertEqual(pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"])
                for container in [*pod["containers"], *pod.get("initContainers", [])]:
                    self.assertEqual(container["image"], IMAGE)
                    self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                                    "capabilities": {"drop": ["ALL"]}})
                    self.assertTrue({"cpu", "memory"} <= set(container["resources"]["requests"]))
                    self.assertNotIn(documents[0]["data"]["job.key"], json.dumps(container))
                (container,) = pod["containers"]
                volumes = {volume["name"]: volume for volume in pod["volumes"]}
                self.assertEqual(volumes["key"]["secret"], {"secretName": "psring-key", "defaultMode": 0o440})
                self.assertEqual(volumes["shm"]["emptyDir"]["medium"], "Memory")
                self.assertEqual({mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]},
                                 {"key": "/etc/psring", "tmp": "/tmp", "shm": "/dev/shm", "runs": "/runs", "data": "/data"})
                self.assertEqual(sorted(volumes), sorted(mount["name"] for mount in container["volumeMounts"]))
                self.assertIn("livenessProbe", container)
                self.assertEqual("startupProbe" in container, name == "coordinator")
                spec = pod["job"]
                self.assertEqual((spec["completionMode"], spec["parallelism"]), ("Indexed", spec["completions"]))
                self.assertEqual(spec["backoffLimit"], 0 if name == "coordinator" else 10 * spec["completions"])

    def test_names_agree(self):
        """The pods wait for the name that the coordinator's pod will have."""
        for kind, host in (([], "a-coordinator-0.a"), (["--jobset"], "a-coordinator-0-0.a")):
            documents = self.documents(*kind, "--name", "a", "--port", 7001, *JOB)
            pods = pods_of(documents)
            self.assertIn("0.0.0.0:7001", pods["coordinator"]["containers"][0]["command"])
            for name in ("server", "worker"):
                self.assertIn(f"{host}:7001", pods[name]["containers"][0]["command"])
                self.assertEqual(pods[name]["initContainers"][0]["command"][-1], host)
            if kind:
                self.assertEqual(documents[1]["spec"]["network"]["subdomain"], "a")
            else:
                self.assertEqual({pod["subdomain"] for pod in pods.values()}, {"a"})
                service = documents[1]["spec"]
                self.assertEqual((service["clusterIP"], service["publishNotReadyAddresses"]), ("None", True))
                for document in documents[2:]:
                    labels = document["spec"]["template"]["metadata"]["labels"]
                    self.assertEqual(service["selector"], {name: labels[name] for name in service["selector"]})

    def test_options(self):
        """The coordinator gets the job's options, with all characters; a size is that of its role."""
        pods = pods_of(self.documents(*JOB[2:], "--fault", "kill:worker:1@step=2", "--data", "idx:/data/$(RANK)/'\"", "--nesterov",
                                      "--momentum", 0.5, "--cpu", "2", "--memory", "3Gi", "--server-memory", "500M",
                                      "--max-restarts", 4, "--checkpoint-dir", "/runs/checkpoints", "--checkpoint-every", 5))
        command = pods["coordinator"]["containers"][0]["command"]
        for flag, value in (("--data", "idx:/data/$$(RANK)/'\""), ("--fault", "kill:worker:1@step=2"), ("--max-restarts", "4"),
                            ("--join-timeout", "600"), ("--checkpoint-dir", "/runs/checkpoints"), ("--strategy", "ps")):
            self.assertEqual(command[command.index(flag) + 1], value)
        self.assertIn("--nesterov", command)
        sizes = {name: pods[name]["containers"][0]["resources"] for name in ("server", "worker")}
        self.assertEqual(sizes["worker"], {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}})
        self.assertEqual(sizes["server"], {"requests": {"cpu": "2", "memory": "500M"}, "limits": {"memory": "500M"}})
        gpu = pods_of(self.documents(*JOB, "--device", "cuda"))["worker"]["containers"][0]["resources"]["limits"]
        self.assertEqual(gpu["nvidia.com/gpu"], 1)

    def test_key(self):
        self.key()
        text = (self.folder / "job.key").read_text()
        self.assertEqual(base64.b64decode(self.documents("--key", "job.key", *JOB)[0]["data"]["job.key"]).decode(), text)
        documents = self.documents("--key-secret", "mine", *JOB)
        self.assertNotIn("Secret", [each["kind"] for each in documents])
        self.assertEqual({pod["volumes"][0]["secret"]["secretName"] for pod in pods_of(documents).values()}, {"mine"})

    def test_files(self):
        result = self.run_program("psring", *manifests("--out", "k8s", *JOB))
        self.assert_done(result)
        names = ["secret.yaml", "service.yaml", "coordinator.yaml", "server.yaml", "worker.yaml"]
        self.assertEqual(result.out.splitlines(), [f"k8s/{name}" for name in names])
        for name in names:
            self.assertEqual((self.folder / "k8s" / name).stat().st_mode & 0o777, 0o600)
            self.assertTrue(yaml.safe_load((self.folder / "k8s" / name).read_text())["kind"])
        self.assert_refused(self.run_program("psring", *manifests("--out", "k8s", *JOB)), 2, "k8s/secret.yaml exists already")

    def test_refusals(self):
        for arguments, words in (
            (["--name", "MLP"], ["--name: expected a DNS label", "'MLP'"]),
            (["--name", "a_b"], ["--name: expected a DNS label"]),
            (["--name", "a-"], ["--name: expected a DNS label"]),
            (["--name", "1a"], ["--name: expected a DNS label"]),
            (["--name", ""], ["--name"]),
            (["--name", "a" * 41], ["--name", "at most 40"]),
            (["--namespace", "a.b"], ["--namespace: expected a DNS label"]),
            (["--runs-claim", "Runs"], ["--runs-claim: expected a DNS name"]),
            (["--data-claim", "a..b"], ["--data-claim: expected a DNS name"]),
            (["--key-secret", "-a"], ["--key-secret: expected a DNS name"]),
            (["--image", "a b"], ["--image: expected an image"]),
            (["--cpu", "many"], ["--cpu: expected a quantity"]),
            (["--memory", "2GiB"], ["--memory: expected a quantity"]),
            (["--port", "70000"], ["--port"]),
            (["--transport", "shm"], ["--transport shm", "pod"]),
            (["--elastic", "2:3"], ["--elastic", "--max-restarts"]),
            (["--key", "none.key"], ["--key none.key"]),
            (["--global-batch", "0"], ["--global-batch"]),
            (["--strategy", "nothing"], ["--strategy"]),
        ):
            with self.subTest(arguments=arguments):
                job = JOB if arguments[0] not in JOB else JOB[:JOB.index(arguments[0])] + JOB[JOB.index(arguments[0]) + 2:]
                result = self.run_program("psring", *manifests(*job, *arguments))
                self.assertIn(result.status, (2, 3))
                self.assert_refused(result, result.status, *words)
        self.assert_refused(self.run_program("psring", "manifests", "--image", IMAGE, "--runs-claim", "a"), 2, "--kubernetes")


class Schema(ManifestsTest):
    def mistakes(self, objects):
        """The first mistake of each object, None if there is none."""
        if not PYTHON.exists():
            self.skipTest("SKIPPED: no packages of PyPI; scripts/setup test installs them")
        result = subprocess.run([PYTHON, "-B", ROOT / "tests" / "kubernetes" / "validate.py"], input=json.dumps(objects),
                                capture_output=True, text=True, check=True)
        return json.loads(result.stdout)

    def objects(self, *arguments):
        """The objects; the Jobs of a JobSet, for which there is no schema, stand for it."""
        objects = []
        for document in self.documents(*arguments, *JOB):
            if document["kind"] != "JobSet":
                objects.append(document)
                continue
            self.assertEqual(set(document), {"apiVersion", "kind", "metadata", "spec"})
            self.assertEqual(set(document["spec"]), {"network", "successPolicy", "failurePolicy", "replicatedJobs"})
            for job in document["spec"]["replicatedJobs"]:
                self.assertEqual(set(job), {"name", "replicas", "template"})
                objects.append({"apiVersion": "batch/v1", "kind": "Job", **job["template"]})
        return objects

    def test_good_and_broken(self):
        objects = self.objects("--namespace", "training", "--data-claim", "data", "--gpus", 2)
        self.assertEqual(self.mistakes(objects), [None] * 5)
        self.assertEqual(self.mistakes(self.objects("--jobset")), [None] * 4)
        container = ["spec", "template", "spec", "containers", 0]
        broken = {
            "a number as a text": (4, ["spec", "completions"], "3"),
            "an unknown field": (4, ["spec", "paralelism"], 3),
            "an unknown field of a container": (4, [*container, "imag"], IMAGE),
            "a word for a truth value": (4, [*container, "securityContext", "readOnlyRootFilesystem"], "yes"),
            "another kind": (4, ["kind"], "Pod"),
            "a list of numbers": (4, [*container, "command"], [1, 2]),
            "a port as a text": (1, ["spec", "ports", 0, "port"], "7070"),
            "data that are no text": (0, ["data", "job.key"], 7),
            "a missing template": (4, ["spec", "template"], None),
        }
        wrong = []
        for number, path, value in broken.values():
            one = copy.deepcopy(objects[number])
            place = one
            for name in path[:-1]:
                place = place[name]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            wrong.append(one)
        for name, mistake in zip(broken, self.mistakes(wrong)):
            with self.subTest(name):
                self.assertIsNotNone(mistake)


class Cluster(ManifestsTest):
    """The part of Kubernetes that matters to a job: starts the commands of all pods, and those of lost pods again."""

    def setUp(self):
        super().setUp()
        (self.folder / "runs").mkdir()
        self.pods = {}
        self.port = free_port()

    def command(self, name, rank):
        """The command of a container, with the paths and names of this host."""
        words = []
        for word in self.specifications[name]["containers"][0]["command"]:
            word = word.replace("$(RANK)", str(rank)).replace("/etc/psring/job.key", str(self.folder / "job.key"))
            word = re.sub(r"^(0\.0\.0\.0|psring-coordinator-0\.psring):", "127.0.0.1:", word)
            words.append(re.sub("^/runs", str(self.folder / "runs"), word))
        return words

    def launch(self, name, rank=0):
        self.pods[name, rank] = self.start(*self.command(name, rank))

    def begin(self, *arguments):
        documents = self.documents("--port", self.port, *arguments)
        self.specifications = pods_of(documents)
        key = self.file("job.key", base64.b64decode(documents[0]["data"]["job.key"]))
        key.chmod(0o600)
        for name, pod in self.specifications.items():
            for rank in range(pod["job"]["completions"]):
                self.launch(name, rank)

    def finish_all(self):
        """Replaces pods that fail, until the coordinator ends; returns what the coordinator said, and the exits."""
        exits = []
        while self.pods["coordinator", 0].poll() is None:
            for (name, rank), process in list(self.pods.items()):
                status = process.poll()
                if name == "coordinator" or status in (None, 0):
                    continue
                self.assertIn(status, (4, 143, -9), self.finish(process))
                exits.append((name, rank, status))
                self.launch(name, rank)
            until(lambda: any(process.poll() not in (None, 0) for process in self.pods.values())
                  or self.pods["coordinator", 0].poll() is not None, "the job has neither lost a process nor ended")
        result = self.finish(self.pods.pop(("coordinator", 0)))
        self.assert_done(result)
        for process in self.pods.values():
            self.assertEqual(self.finish(process).status, 0)
        return result.out, exits

    def until_step(self, step):
        metrics = self.folder / "runs" / "psring" / "metrics.jsonl"
        until(lambda: metrics.exists() and re.search(rf'"step":{step},', metrics.read_text()), f"step {step}")

    def goes_on(self, lost, *arguments, number=signal.SIGKILL):
        job = [*TINY, *arguments, "--steps", 400, "--seed", 5, "--encrypt", "off", "--link", "1gbit,1ms"]
        self.assert_done(self.train(*job, "--out", "whole"))
        self.begin(*job, "--heartbeat-timeout", 2)
        self.until_step(100)
        self.pods[lost].send_signal(number)
        out, exits = self.finish_all()
        self.assertEqual(self.model("runs/psring"), self.model("whole"))
        return out, exits

    def assert_metrics(self, workers):
        lines = [json.loads(line) for line in (self.folder / "runs" / "psring" / "metrics.jsonl").read_text().splitlines()]
        steps = {(line["worker"], line["step"]) for line in lines if "step_s" in line}
        for worker in range(workers):
            self.assertIn((worker, 399), steps)
        self.assertTrue({step for _, step in steps} >= set(range(400)))

    def test_undisturbed(self):
        self.begin(*JOB)
        out, exits = self.finish_all()
        self.assertEqual(exits, [])
        self.assertIn("ps: 20 steps", out)

    def test_worker_that_is_killed(self):
        """Its pod is replaced, and the model is bitwise identical to that of a job without losses."""
        out, exits = self.goes_on(("worker", 1), "--strategy", "ps", "--workers", 2, "--servers", 2)
        self.assertEqual(exits, [("worker", 1, -9)])
        self.assertRegex(out, r"worker 1 \(.*\) exited before the workers were done")
        self.assertIn("epoch 1: going on with step", out)
        self.assert_metrics(2)

    def test_worker_that_is_evicted(self):
        out, exits = self.goes_on(("worker", 0), "--strategy", "ddp", "--workers", 3, number=signal.SIGTERM)
        self.assertEqual(exits, [("worker", 0, 143)])
        self.assertIn("epoch 1: going on with step", out)
        self.assert_metrics(3)

    def test_state_that_is_lost(self):
        """All pods are replaced, and begin again from the checkpoint."""
        out, exits = self.goes_on(("worker", 1), "--strategy", "zero3", "--workers", 2, "--checkpoint-every", 20)
        self.assertIn(("worker", 0, 4), exits)
        self.assertRegex(out, r"the job begins again with step \d+")
        self.assert_metrics(2)


if __name__ == "__main__":
    unittest.main()
