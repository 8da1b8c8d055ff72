"""The table of all options of all commands, as the programs print it."""

import dataclasses
import json
import os
import re
import subprocess

FILES = {"FILE", "FILES", "DIR"}  # the values that a shell completes to names of files


def load(program):
    """Returns what a program prints about its options."""
    # An option that an environment variable replaces would not be required.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "RANK"))}
    printed = subprocess.run([program, "options"], capture_output=True, check=True, text=True, env=environment).stdout
    return json.loads(printed)


@dataclasses.dataclass(frozen=True)
class Option:
    names: tuple  # with dashes; a positional argument has one name without dashes
    value: str  # the name of its value; "" if the option takes none
    default: str
    help: str
    required: bool = False
    choices: tuple = ()
    needs: tuple = ()
    repeats: bool = False  # a positional argument of several values

    @property
    def is_positional(self):
        return not self.names[0].startswith("-")

    @property
    def takes_value(self):
        return bool(self.value) and not self.is_positional

    @property
    def takes_file(self):
        return self.value in FILES

    @property
    def is_list(self):
        return "--strategies" in self.names


@dataclasses.dataclass(frozen=True)
class Command:
    program: str  # psring-bench
    name: str  # all_reduce; "" for the program itself
    help: str
    sections: tuple  # of the text below the options
    options: tuple
    groups: tuple = ()  # (title, options) of a job

    @property
    def title(self):
        return f"{self.program} {self.name}".rstrip()

    @property
    def job_options(self):
        return [option for _, options in self.groups for option in options]

    @property
    def all_options(self):
        return [*self.options, *self.job_options]


@dataclasses.dataclass(frozen=True)
class Section:
    title: str  # "" for a text of its own
    entries: tuple  # (name, text); the name of a text of its own is ""


def sections(footer):
    """Parses the text below the options: paragraphs, and lists of names with a text each, under a title."""
    found = []
    for block in re.split(r"\n\n+", footer.strip("\n")):
        lines = block.split("\n")
        if not lines[0].endswith(":") or len(lines) == 1 or not lines[1].startswith("  "):
            found.append(Section("", (("", " ".join(lines)),)))
            continue
        entries = []
        for line in lines[1:]:
            if line[2] != " ":
                entries.append(re.match(r"  (\d+(?:, \d+)*|\S+)\s*(.*)$", line).groups())
            else:
                name, text = entries[-1]
                entries[-1] = (name, f"{text} {line.strip()}".strip())
        found.append(Section(lines[0][:-1], tuple(entries)))
    return tuple(found)


def choices_of(names, value, known):
    """Returns the words that a value can be: those of a form such as on|off, or the names of a list such as Strategies."""
    for name in names:
        if name in known:
            return known[name]
    words = value.split("|")
    return tuple(words) if len(words) > 1 and all(re.fullmatch(r"[a-z0-9-]+", word) for word in words) else ()


def options_of(rows, known):
    options = []
    for row in rows:
        names = tuple(row["name"].split(","))
        value = row["value"] if row["name"].startswith("-") else row["value"] or "TEXT"
        options.append(Option(names, value, row["default"], row["help"], row["required"],
                              choices_of(names, value, known), tuple(row.get("needs", ())), row["repeats"]))
    return tuple(options)


HELP = Option(("-h", "--help"), "", "", "print the help and exit")
HELP_ALL = Option(("--help-all",), "", "", "print the help with all options of a job and exit")
VERSION = Option(("--version",), "", "", "print the version and exit")


def commands(folder):
    """Returns the programs in a folder and their commands, as lists: a program comes before its commands."""
    listed = []
    for program in ("psring", "psring-bench"):
        data = load(folder / program)
        footers = [data["footer"], *(row["footer"] for row in data["commands"])]
        known = {}
        for section in (section for footer in footers for section in sections(footer)):
            for name in re.findall(r"--[\w-]+", section.title):
                known[name] = tuple(entry for entry, _ in section.entries)
        general = data["help"].split(": ", 1)[1]
        listed.append(Command(program, "", general, sections(data["footer"]), (HELP, VERSION)))
        groups = tuple((group["title"], options_of(group["options"], known)) for group in data.get("job", {}).get("groups", ()))
        for row in data["commands"]:
            own, _, name = row["name"].partition(" ")
            options = (HELP, *((HELP_ALL,) if row["takes_job"] else ()), *(() if name else (VERSION,)),
                       *options_of(row["options"], known))
            text = row["help"] or f"a {own.removeprefix('psring-')} of a job"
            below = sections(row["footer"]) if row["footer"] else ()
            job = tuple((title, tuple(option for option in of if option.names[0] not in row["without"])) for title, of in groups)
            listed.append(Command(own, name, text, below, options, job if row["takes_job"] else ()))
    return listed
