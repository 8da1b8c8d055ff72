"""Runs a function at the ranks of a job, as processes that are forked from this one: PyTorch is imported once."""

import multiprocessing
import os
import random
import signal
import socket
import time
import traceback
import warnings

import torch
import torch.distributed as dist

SCALE = float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))
_fork = multiprocessing.get_context("fork")


class Failed(Exception):
    """A rank raised, or ended without a result: `type` and `text` of its exception."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


def runs(pid):
    """Tells whether a process has not ended. One that has may be a zombie until its parent waits for it; the first process of
    a container, which inherits it, may not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def free_port():
    """Returns a free port below those that the kernel hands out: a connection could get one of these before a rank
    listens at it."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue


def status_of_fork(call, refusal):
    """Calls `call` in a process that is forked from this rank. Returns its exit status: 7 if `call` raises `refusal`."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except refusal:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _rank(pipe, function, rank, size, backend, port, environment, arguments):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "torch.distributed.* deprecated")  # those of old calls that tests make
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **environment
    )
    try:
        if backend is not None:
            dist.init_process_group(backend)
        pipe.send(("ok", function(rank, size, *arguments)))
    except BaseException as error:
        pipe.send(("raised", type(error).__name__, str(error), traceback.format_exc()))
        raise  # the interpreter ends as it does after an exception in a program


class Ranks:
    """The processes of a job. `results` waits for all."""

    def __init__(self, function, size, backend="psring", environment=None, arguments=()):
        port = free_port()
        self.processes = []
        self._pipes = []
        for rank in range(size):
            mine, theirs = _fork.Pipe()
            process = _fork.Process(
                target=_rank, args=(theirs, function, rank, size, backend, port, environment or {}, arguments)
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(mine)

    def signal(self, rank, how):
        os.kill(self.processes[rank].pid, how)

    def result(self, rank, seconds=120):
        """The result of a rank; Failed if it raised; an AssertionError if it hangs."""
        pipe = self._pipes[rank]
        assert pipe.poll(seconds * SCALE), f"rank {rank} has no result after {seconds * SCALE:g} s{self._others(rank)}"
        try:
            answer = pipe.recv()
        except EOFError:
            return Failed("Ended", "without a result")
        return answer[1] if answer[0] == "ok" else Failed(answer[1], answer[2])

    def _others(self, rank):
        """What the other ranks raised: `rank` may wait for them."""
        failed = [self.result(r, 0) for r, pipe in enumerate(self._pipes) if r != rank and pipe.poll(0)]
        return "".join(f"; another {each}" for each in failed if isinstance(each, Failed))

    def results(self, seconds=120):
        try:
            return [self.result(rank, seconds) for rank in range(len(self.processes))]
        finally:
            self.end()

    def end(self, seconds=30):
        until = time.monotonic() + seconds * SCALE
        statuses = []
        for process in self.processes:
            process.join(max(0, until - time.monotonic()))
            hung = process.is_alive()
            if hung:
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            statuses.append("hung" if hung else process.exitcode)
        return statuses


def run(function, size, backend="psring", environment=None, arguments=(), seconds=120):
    """The results of all ranks; raises what a rank raised."""
    results = Ranks(function, size, backend, environment, arguments).results(seconds)
    for result in results:
        if isinstance(result, Failed):
            raise result
    return results
