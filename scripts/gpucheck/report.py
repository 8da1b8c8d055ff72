"""The report of scripts/gpu-check: a section for each part, on disk before and after every command."""

import os
import pathlib
import re
import shutil

PARTS = ("build", "torch", "ps", "share", "backend", "jobs", "sanitize", "kernels", "step", "sweep")
BAD = ("failed", "stopped", "not run", "running")  # as a command's heading says in brackets
LOG_BYTES = 2 << 20  # of a command's output that the log keeps


def sections_of(report):
    """The sections that earlier calls wrote, by part."""
    if not report.exists():
        return {}
    pieces = re.split(rf"^## ({'|'.join(PARTS)})\n", report.read_text(), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2]))


class Report:
    """Sections and a log of all output. Both are in `folder`, which outlives a call, and in $OUT where that is set,
    since a rented machine gives nothing else back. A command's heading says 'running' until it has ended, so that a
    report also tells which command was under way when everything was killed."""

    def __init__(self, path):
        self.path = path
        self.out = pathlib.Path(os.environ["OUT"]) if os.environ.get("OUT") else None
        self.sections = sections_of(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # In $OUT itself: a process that is killed copies nothing.
        self.folder = self.out or path.parent
        self.folder.mkdir(parents=True, exist_ok=True)

    def begin(self, part, facts):
        self.part = part
        self.sections[part] = "\n" + "".join(f"- {fact}\n" for fact in facts) + "\n"
        self.write()

    def say(self, *lines):
        self.sections[self.part] += "".join(f"{line}\n" for line in lines)

    def mark_running(self, title):
        """Shows that a command has begun; `say` after `unmark` replaces it."""
        self.before = self.sections[self.part]
        self.say(f"### {title} (running)", "", "It had not ended when this was written; its output is in the log.", "")
        self.write()

    def unmark(self):
        self.sections[self.part] = self.before

    def wanted(self, name, value, met, bound):
        """A figure that has a bound, and whether it is kept."""
        self.say(f"- wanted: {name}: {value}, {bound}: **{'met' if met else 'NOT MET'}**", "")

    def keep_output(self, title, shown):
        """A function that appends output to the log, up to LOG_BYTES of this command's."""
        log = open(self.folder / "gpu-check-log.txt", "ab", buffering=0)
        log.write(f"\n==== {title}: {shown}\n".encode())
        room = LOG_BYTES

        def keep(chunk):
            nonlocal room
            log.write(chunk[:room])
            room -= min(room, len(chunk))

        return keep

    def write(self):
        sections = "".join(f"## {part}\n{self.sections[part]}" for part in PARTS if part in self.sections)
        bad = re.findall(rf"^### (.* \((?:{'|'.join(BAD)})[^)]*\))$", sections, flags=re.MULTILINE)
        wanted = re.findall(r"^- wanted: (.*)$", sections, flags=re.MULTILINE)
        head = ["# On a GPU", "", "Written by `scripts/gpu-check`, with the commands that gave each figure.", ""]
        for lines in (bad, wanted):
            head += [*(f"- {each}" for each in lines), *([""] if lines else [])]
        whole = self.path.with_suffix(".new")
        whole.write_text("\n".join([*head, sections]))
        whole.replace(self.path)
        if self.out:
            shutil.copyfile(self.path, self.out / "gpu-check.new")
            (self.out / "gpu-check.new").replace(self.out / "gpu-check.md")


def merge(reports, out):
    """Each part's section from the last report that has one."""
    merged = Report(out)
    for report in reports:
        merged.sections.update(sections_of(report))
    merged.write()
