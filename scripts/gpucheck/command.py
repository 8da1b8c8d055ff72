"""Running a command under a time limit, with its output passed on as it comes."""

import ctypes
import os
import select
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def end_with_parent():
    """In the child: the kernel ends it if its parent is killed."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def begin_group():
    """In the child: a process group of its own, which `finish` ends."""
    os.setpgid(0, 0)
    end_with_parent()


def finish(command, seconds, keep, **options):
    """Exit status, or 'stopped' after `seconds`, and output. Nothing of the command's process group is left running.
    `keep` is called with each piece of output as soon as it is there."""
    end = time.monotonic() + seconds
    output = bytearray()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          preexec_fn=begin_group, bufsize=0, **options) as process:
        try:
            status = None
            while status is None:
                left = end - time.monotonic()
                if left <= 0:
                    status = "stopped"
                elif select.select([process.stdout], [], [], min(left, 0.1))[0]:
                    chunk = os.read(process.stdout.fileno(), 1 << 16)
                    keep(chunk)
                    output += chunk
                    if not chunk:
                        status = wait(process, end)
                else:
                    status = process.poll()  # ended, while a process that it started has the pipe
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    return status, output.decode(errors="replace")


def wait(process, end):
    try:
        return process.wait(timeout=max(0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "stopped"
