"""Hosts that are network namespaces of this machine."""

import subprocess


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
