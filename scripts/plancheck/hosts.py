"""Hosts that are network namespaces of this machine."""

import json
import pathlib
import subprocess
import sys
import tempfile


def run(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True, text=True)


class Hosts:
    """Network namespaces around a switch. The first one is the coordinator's, whose link has no limit.

    The buckets' queues hold up to a second of data, and acknowledgements wait behind it: BBR, or a small first window, would
    leave the links idle for many steps. Segments have at most 9,000 bytes, as one of 64 KiB takes 10 ms at these rates.
    """

    PREFIX = "psring-plan"
    BURST = 16_384  # bytes that may leave at once; a small part of a unit

    def __init__(self, count, rate):
        self.names = [f"{self.PREFIX}-{i}" for i in range(count + 1)]
        self.rate = rate

    def __enter__(self):
        self.__exit__()
        switch = f"{self.PREFIX}-switch"
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge0", "mtu", 9000, "up")
        for i, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "netns", "exec", name, "sysctl", "-q", "net.ipv4.tcp_congestion_control=reno")
            run("ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", f"port{i}", "netns", switch)
            run("ip", "-n", name, "addr", "add", f"10.231.2.{i + 1}/24", "dev", "veth0")
            run("ip", "-n", switch, "link", "set", f"port{i}", "master", "bridge0")
            for place, device in ((name, "veth0"), (switch, f"port{i}")):
                run("ip", "-n", place, "link", "set", device, "mtu", 9000, "gso_max_size", 9000, "up")
                if i > 0:
                    run("tc", "-n", place, "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate, "burst", self.BURST,
                        "latency", "1s")
            run("ip", "-n", name, "route", "change", "10.231.2.0/24", "dev", "veth0", "initcwnd", 400, "initrwnd", 400)
        return self

    def __exit__(self, *_):
        for name in run("ip", "netns", "list").stdout.split():
            if name.startswith(f"{self.PREFIX}-"):
                run("ip", "netns", "delete", name)

    def start(self, host, *words):
        command = ["ip", "netns", "exec", self.names[host], *(str(word) for word in words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_job(binary, rate, workers, servers, options):
    """Runs a job with each worker and standalone server on a host of its own. Returns the lines of its metrics."""
    binaries = pathlib.Path(binary).parent
    with tempfile.TemporaryDirectory() as folder, Hosts(workers + servers, rate) as hosts:
        run(binary, "keygen", f"{folder}/job.key")
        flags = ["--key", f"{folder}/job.key"]
        coordinator = hosts.start(0, binary, "coordinator", "--listen", "10.231.2.1:0", *flags, "--out", f"{folder}/run", *options)
        endpoint = coordinator.stdout.readline().split()[2].rstrip(":")
        for host in range(1, 1 + workers + servers):
            role = "worker" if host <= workers else "server"
            hosts.start(host, binaries / f"psring-{role}", "--rdzv-endpoint", endpoint, *flags)
        if coordinator.wait(300) != 0:
            sys.exit(f"{' '.join(map(str, options))}: {coordinator.stdout.read()}")
        return [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
