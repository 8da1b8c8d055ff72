"""What passes over the loopback interface, as whoever listens to the network sees it."""

import collections
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading

IP = 0x0800
SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 33, 263, 6
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1


@contextlib.contextmanager
def own_network():
    """A network of this thread, and of the processes and threads that it starts, with a loopback interface: what others on this
    host send does not pass over it. Without the right to make one, the host's network stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        if libc.unshare(CLONE_NEWNET) != 0:
            yield
            return
        try:
            with socket.socket() as any_socket:
                fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
            yield
        finally:
            if libc.setns(before.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Capture:
    """Records all TCP of the loopback interface until `close`. Raises PermissionError where that is not allowed."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IP))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
        self.socket.bind(("lo", IP))
        self.socket.settimeout(0.05)
        self.lock = threading.Lock()
        self.segments = collections.defaultdict(dict)  # (source, destination) -> sequence number -> bytes
        self.done = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                packet = self.socket.recv(1 << 17)
            except socket.timeout:
                if self.done:
                    return
                continue
            if packet[9] != socket.IPPROTO_TCP:
                continue
            tcp = packet[4 * (packet[0] & 15):struct.unpack_from("!H", packet, 2)[0] or None]
            source, destination, sequence = struct.unpack_from("!HHI", tcp)
            if data := tcp[4 * (tcp[12] >> 4):]:
                with self.lock:
                    self.segments[source, destination][sequence] = data

    def close(self):
        """Ends it; how many packets were missed."""
        if not self.done:
            self.done = True
            self.thread.join()
            with contextlib.suppress(OSError):
                self.missed = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
            self.socket.close()
        return self.missed

    def streams(self):
        """The bytes of each direction of each connection, as far as they came: (source, destination) -> bytes."""
        with self.lock:
            all_segments = {ports: dict(segments) for ports, segments in self.segments.items()}
        streams = {}
        for ports, segments in all_segments.items():
            first = next(iter(segments))  # the earliest: numbers may wrap around
            stream = bytearray()
            for sequence in sorted(segments, key=lambda number: (number - first) & 0xFFFFFFFF):
                at = (sequence - first) & 0xFFFFFFFF
                if at > len(stream) + (1 << 30):
                    continue  # before the first one that was seen
                stream[at:at + len(segments[sequence])] = segments[sequence]
            streams[ports] = bytes(stream)
        return streams
