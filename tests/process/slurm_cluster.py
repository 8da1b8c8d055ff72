"""A real Slurm on this machine: munged, slurmctld, and two slurmd, each in a network and UTS namespace of its own, all
joined by a bridge. Everything lies in one folder, and ends with the object."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

from support import LIMIT, until

CONTROLLER = "10.232.0.1"
NODES = {"psa": "10.232.0.2", "psb": "10.232.0.3"}
PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "ip", "unshare", "nsenter"]

CONFIGURATION = """
ClusterName=psring
SlurmctldHost=psc({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
SlurmdTimeout={silence}
MessageTimeout=60
KillWait=5
TreeWidth=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def reason_to_skip():
    """Why Slurm cannot run here; none if it can."""
    missing = [program for program in PROGRAMS if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        return f"the programs {', '.join(missing)} are missing (packages slurm-wlm, munge, iproute2)"
    if os.geteuid() != 0:
        return "only root can make the namespaces of Slurm's nodes"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Slurm:
    def __init__(self, folder, silence=30):
        self.folder = pathlib.Path(folder)
        self.silence = silence
        self.daemons = []
        self.prefix = f"psring-{os.getpid()}"
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}

    def __enter__(self):
        try:
            self.folder.mkdir(mode=0o755)
            for name in ("state", *(f"spool-{node}" for node in NODES)):
                (self.folder / name).mkdir()
            self.configure()
            self.join()
            self.start_munge()
            self.start("ctld", "slurmctld", "-D", "-i")
            for node in NODES:
                self.start(node, "slurmd", "-D", "-N", node)
            until(self.idle, f"Slurm's nodes are not idle: {self.logs()}", limit=LIMIT / 5)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        for name in self.names():
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def names(self):
        return [f"{self.prefix}-{node}" for node in ("ctld", *NODES)]

    def configure(self):
        cores = 4  # of each node; config_overrides lets a node have more than the machine
        nodes = "\n".join(f"NodeName={node} NodeAddr={address} CPUs={cores} RealMemory=100 State=UNKNOWN"
                          for node, address in NODES.items())
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, controller=CONTROLLER, nodes=nodes, silence=self.silence))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainCores=no\n")
        (self.folder / "hosts").write_text("".join(
            f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", "psc": CONTROLLER, **NODES}.items()))

    def join(self):
        """A bridge in the controller's namespace, and a cable from it to each node."""
        controller, *nodes = self.names()
        for name in self.names():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", controller, "link", "add", "bridge0", "type", "bridge")
        ip("-n", controller, "addr", "add", f"{CONTROLLER}/24", "dev", "bridge0")
        ip("-n", controller, "link", "set", "bridge0", "up")
        for name, (node, address) in zip(nodes, NODES.items()):
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", node, "netns", controller)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", controller, "link", "set", node, "master", "bridge0", "up")

    def inside(self, node):
        """A prefix that runs a command on a host: its network, its name, its /etc/hosts, its control groups."""
        host = "psc" if node == "ctld" else node
        script = (f'hostname {host}; mount --bind {self.folder}/hosts /etc/hosts; mount -t tmpfs none /sys/fs/cgroup; '
                  f'mkdir -p /sys/fs/cgroup/freezer; exec "$@"')
        return ["ip", "netns", "exec", f"{self.prefix}-{node}", "unshare", "--uts", "--mount", "sh", "-c", script, "sh"]

    def start(self, node, program, *arguments):
        log = open(self.folder / f"{program}-{node}.out", "w")
        self.daemons.append(subprocess.Popen([*self.inside(node), program, *arguments], env=self.environment, stdout=log,
                                             stderr=log, stdin=subprocess.DEVNULL, start_new_session=True))
        log.close()

    def start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.start("ctld", "munged", "--foreground", "--force", "--key-file", key, "--socket", self.folder / "munge.socket",
                   "--pid-file", self.folder / "munged.pid", "--log-file", self.folder / "munged.log",
                   "--seed-file", self.folder / "munged.seed")
        until((self.folder / "munge.socket").exists, "munged has no socket", limit=LIMIT / 5)

    def logs(self):
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))

    def run(self, *command, folder=None, env=None, check=True):
        """Runs a command on the controller's host."""
        result = subprocess.run([*self.inside("ctld"), *map(str, command)], cwd=folder, text=True, capture_output=True,
                                env={**self.environment, **(env or {})}, stdin=subprocess.DEVNULL, timeout=LIMIT)
        if check and result.returncode:
            raise AssertionError(f"{command}: {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def idle(self):
        """Are all nodes free?"""
        states = self.run("sinfo", "-h", "-N", "-o", "%T", check=False).stdout.split()
        return len(states) == len(NODES) and set(states) == {"idle"}

    def state(self, job):
        """A job's state, such as RUNNING."""
        text = self.run("scontrol", "show", "job", job).stdout
        return text.split("JobState=")[1].split()[0]
