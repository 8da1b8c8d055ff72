"""Reads TensorBoard's event files: TFRecords with one Event of TensorFlow's event.proto each. Every field that is not
expected, and every checksum that does not match, is an error."""

import struct

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Messages as {field number: (name, wire type, reader)}.
VALUE = {1: ("tag", BYTES, bytes.decode), 2: ("simple_value", FIXED32, lambda raw: struct.unpack("<f", raw)[0])}
SUMMARY = {1: ("value", BYTES, lambda raw: message(raw, VALUE))}
SESSION_LOG = {1: ("status", VARINT, int)}
EVENT = {
    1: ("wall_time", FIXED64, lambda raw: struct.unpack("<d", raw)[0]),
    2: ("step", VARINT, int),
    3: ("file_version", BYTES, bytes.decode),
    5: ("summary", BYTES, lambda raw: message(raw, SUMMARY, repeated=True)),
    7: ("session_log", BYTES, lambda raw: message(raw, SESSION_LOG)),
}
START = 1


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(raw, at):
    number = shift = 0
    while True:
        number |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return number, at


def message(raw, fields, repeated=False):
    """The fields of a message by name; if `repeated`, the list of the values of its only field."""
    found, listed, at = {}, [], 0
    while at < len(raw):
        key, at = varint(raw, at)
        name, wire, read = fields[key >> 3]
        if key & 7 != wire:
            raise ValueError(f"{name}: wire type {key & 7}")
        if wire == VARINT:
            value, at = varint(raw, at)
        else:
            size, at = varint(raw, at) if wire == BYTES else ({FIXED64: 8, FIXED32: 4}[wire], at)
            if at + size > len(raw):
                raise ValueError(f"{name}: ends too early")
            value, at = raw[at:at + size], at + size
        if name in found and not repeated:
            raise ValueError(f"{name}: is there twice")
        found[name] = read(value)
        listed.append(found[name])
    return listed if repeated else found


def read_events(file):
    """The events of a file. A record that is cut, as by a crash, ends it."""
    data, at, events = file.read_bytes(), 0, []
    while at + 12 <= len(data):
        size, checksum = struct.unpack_from("<QI", data, at)
        if checksum != masked_crc32c(data[at:at + 8]):
            raise ValueError(f"{file}: byte {at}: the length's checksum")
        body = data[at + 12:at + 12 + size]
        if at + 16 + size > len(data):
            break
        if struct.unpack_from("<I", data, at + 12 + size)[0] != masked_crc32c(body):
            raise ValueError(f"{file}: byte {at}: the event's checksum")
        events.append({"step": 0, **message(body, EVENT)})
        at += 16 + size
    return events


def files_of(run):
    """The event files of a run, in the order in which TensorBoard reads them."""
    return sorted((run / "tensorboard").iterdir())


def read_run(run):
    """The curves that TensorBoard shows, {tag: {step: (value, wall time)}}: a session that starts drops the values of its
    step and of later steps."""
    curves, sessions = {}, 0
    for file in files_of(run):
        events = read_events(file)
        if events[0].get("file_version") != "brain.Event:2" or events[1].get("session_log") != {"status": START}:
            raise ValueError(f"{file}: begins with {events[:2]}")
        for event in events:
            if "session_log" in event:
                sessions += 1
                for curve in curves.values() if sessions > 1 else ():
                    for step in [step for step in curve if step >= event["step"]]:
                        del curve[step]
            for value in event.get("summary", []):
                curve = curves.setdefault(value["tag"], {})
                if event["step"] in curve:
                    raise ValueError(f"{file}: {value['tag']} has step {event['step']} twice")
                curve[event["step"]] = (value["simple_value"], event["wall_time"])
    return curves
