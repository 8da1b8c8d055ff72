"""The work of this machine's processors for a message between hosts in namespaces, beyond that for one on loopback.

psring fit measures messages on loopback. Between namespaces a segment goes through two virtual cards, a bridge and two token
buckets, whose timers wake the processors up. Real hosts have neither; here the same processors do it.
"""

import json
import pathlib
import statistics
import sys

from plancheck.hosts import Hosts

SMALL, LARGE = 1024, 65_536
SLOW, FAST = "100mbit", "10gbit"  # small messages wait for the buckets, as those of a job do; large ones would be too few


def measure_link_work():
    """Returns the seconds of processors for each message and for each byte."""
    small = statistics.median(extra(SLOW, SMALL) for _ in range(3))
    each_byte = statistics.median((extra(FAST, LARGE) - extra(FAST, SMALL)) / (LARGE - SMALL) for _ in range(3))
    work = {"message_s": small - SMALL * each_byte, "byte_s": each_byte}
    if min(work.values()) < 0:
        sys.exit(f"scripts/plan-check: messages between namespaces cost less than on loopback ({work}); the host is not quiet")
    return work


def add_link_work(fit, work, into):
    """Writes the fit with that work added to its messages over TCP."""
    document = json.loads(pathlib.Path(fit).read_text())
    for name, line in document["lines"].items():
        if name.split(".")[0] in ("work", "batch") and name.split(".")[2].startswith("tcp"):
            line["fixed_s"] += work["message_s"]
            line["per_unit_s"] += work["byte_s"]
    pathlib.Path(into).write_text(json.dumps(document))


def extra(rate, size):
    with Hosts(2, rate) as hosts:
        return message_s(hosts, 2, "10.231.2.3", size) - message_s(hosts, 1, "127.0.0.1", size)


def message_s(hosts, answerer, address, size):
    """The processors' time of a message between host 1 and the answerer."""
    echo = pathlib.Path(__file__).with_name("echo.py")
    answers = hosts.start(answerer, sys.executable, echo, "answer", address, size)
    answers.stdout.readline()  # it listens
    asks = hosts.start(1, sys.executable, echo, "ask", address, size)
    shown = asks.communicate(timeout=60)[0]
    if answers.wait(60) != 0 or asks.returncode != 0:
        sys.exit(f"scripts/plan-check: messages between namespaces: {shown}")
    return float(shown)
