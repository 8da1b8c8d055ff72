"""Exchanges messages between pairs of processes: echo.py answer|ask ADDRESS BYTES."""

import os
import pathlib
import socket
import sys
import time

PAIRS = 24  # enough to keep all processors busy
SECONDS = 1.5
PORT = 7000


def receive(link, memory):
    """Fills the memory. Returns false if the other end has closed."""
    got = 0
    while got < len(memory):
        count = link.recv_into(memory[got:])
        if count == 0:
            return False
        got += count
    return True


def answer(address, size):
    """Answers every message of each of PAIRS processes with one of the same size."""
    listener = socket.create_server((address, PORT), backlog=PAIRS)
    print("listening", flush=True)
    for _ in range(PAIRS):
        link = listener.accept()[0]
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if os.fork() == 0:
            memory = memoryview(bytearray(size))
            while receive(link, memory):
                link.sendall(memory)
            os._exit(0)
        link.close()
    for _ in range(PAIRS):
        os.wait()


def ask(address, size):
    """Exchanges messages by PAIRS processes. Prints the processors' time of each."""
    counts, begin = os.pipe(), time.monotonic() + 2
    for _ in range(PAIRS):
        if os.fork() == 0:
            link = socket.create_connection((address, PORT))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            memory = memoryview(bytearray(size))
            time.sleep(begin - time.monotonic())
            count = 0
            while time.monotonic() < begin + SECONDS:
                link.sendall(memory)
                receive(link, memory)
                count += 2
            os.write(counts[1], f"{count}\n".encode())
            os._exit(0)
    time.sleep(begin - time.monotonic())
    start, idle = time.monotonic(), idle_s()
    for _ in range(PAIRS):
        os.wait()
    busy = os.cpu_count() * (time.monotonic() - start) - (idle_s() - idle)
    os.close(counts[1])
    with open(counts[0]) as file:
        print(busy / sum(int(line) for line in file))


def idle_s():
    """The time for which processors had nothing to do but to wait, all together."""
    idle, io_wait = pathlib.Path("/proc/stat").read_text().split()[4:6]
    return (int(idle) + int(io_wait)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    {"answer": answer, "ask": ask}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
