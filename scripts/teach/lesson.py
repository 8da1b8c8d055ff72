"""A lesson's page: its commands with what they print, its pictures and its figures.

    ```sh                         commands, run in the lesson's folder
    <!-- prints MODE -->          how the next block is compared: exact; within R: numbers may differ by this ratio; times: numbers
    ```                           with a decimal point are not compared
    <!-- picture KIND WORDS -->   the image in the next line is drawn by scripts/teach/pictures.py
    <!-- figures X = EXPRESSION; ... -->   figures of the prose that are calculated

A line of three dots stands for any lines. Every figure of the prose (a number of three digits or more, or with a decimal point)
is printed by a command, is a word of a command, or stands among the calculated figures.
"""

import dataclasses
import re

TOKEN = re.compile(r"(?ms)^```sh\n(?P<sh>.*?)^```$|^<!-- prints (?P<mode>[^\n]*?) -->\n+```\n(?P<out>.*?)^```$"
                   r"|^<!-- picture (?P<kind>\w+) (?P<words>[^\n]*?) -->\n+!\[(?P<alt>[^\]]*)\]\((?P<file>[^)]+)\)"
                   r"|^<!-- figures (?P<figures>.*?) -->$|^```\w*\n(?P<other>.*?)^```$")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


@dataclasses.dataclass
class Step:
    """Commands, and what they print; `expected` is None if that is not shown."""
    commands: list
    mode: str = "exact"
    expected: str = None


@dataclasses.dataclass
class Picture:
    kind: str
    words: list
    title: str
    file: str


class Lesson:
    def __init__(self, path):
        self.path = path
        self.text = path.read_text()
        self.parts, self.figures = [], {}
        self.headings = re.findall(r"(?m)^#+ ", self.text)
        for match in TOKEN.finditer(self.text):
            if match["sh"] is not None:
                self.parts.append(Step(commands_of(match["sh"])))
            elif match["out"] is not None:
                if not self.parts or not isinstance(self.parts[-1], Step):
                    raise ValueError(f"{path.name}: printed lines without a command before them")
                self.parts[-1].mode, self.parts[-1].expected = match["mode"], match["out"]
            elif match["kind"] is not None:
                self.parts.append(Picture(match["kind"], match["words"].split(), match["alt"], match["file"]))
            elif match["figures"] is not None:
                for item in match["figures"].split(";"):
                    figure, expression = item.split("=", 1)
                    self.figures[figure.strip()] = expression.strip()

    def missing_pictures(self, drawn=True):
        """Yields a message for each image that no command draws, and, if all should have been drawn, for each without a file."""
        known = {part.file for part in self.parts if isinstance(part, Picture)}
        for file in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", self.text):
            if file not in known:
                yield f"{file} has no line '<!-- picture KIND WORDS -->' above it, which says how it is drawn"
            elif drawn and not (self.path.parent / file).is_file():
                yield f"{file} does not exist; scripts/lessons draws it"

    def prose(self):
        """The text without blocks, comments and links' targets."""
        text = TOKEN.sub("", self.text)
        text = re.sub(r"(?s)<!--.*?-->", "", text)
        return re.sub(r"\]\([^)]*\)", "]", text)

    def prose_figures(self):
        """Figures of the prose, as they are written."""
        found = []
        for match in NUMBER.finditer(re.sub(r"`[^`]*`", "", self.prose())):
            if "." in match[0] or len(re.sub(r"\D", "", match[0])) >= 3:
                found.append(match[0])
        return found

    def unexplained(self):
        """Figures of the prose that nothing prints or calculates."""
        known = set()
        for part in self.parts:
            if isinstance(part, Step):
                for text in [*part.commands, part.expected or ""]:
                    known.update(plain(number) for number in NUMBER.findall(re.sub(r"[=:,;]", " ", text)))
                    known.update(plain(number) for number in re.findall(r"\d+(?:\.\d+)?", text))
        known.update(plain(figure) for figure in self.figures)
        return [figure for figure in self.prose_figures() if plain(figure) not in known]

    def wrong_figures(self):
        """Calculated figures that differ from their expression beyond the last digit shown."""
        wrong = []
        for figure, expression in self.figures.items():
            value = eval(expression, {"__builtins__": {}}, {"min": min, "max": max, "round": round})  # the lesson's own text
            digits = len(figure.split(".")[1]) if "." in figure else 0
            if abs(float(plain(figure)) - value) > 0.5 * 10.0 ** -digits + 1e-9:
                wrong.append(f"{figure} is not {expression} = {value}")
        return wrong


def plain(number):
    return number.replace(",", "")


def commands_of(block):
    """The block as one script, in which a loop may take several lines."""
    lines = [re.sub(r"\s+", " ", line.split(" #")[0]).rstrip() for line in block.replace("\\\n", " ").splitlines()]
    return ["\n".join(line for line in lines if line and not line.startswith("#"))]


def words_and_numbers(line):
    return re.split(r"(-?\d+(?:\.\d+)?)", re.sub(r"\s+", " ", line.strip()))


def same_line(expected, found, mode):
    left, right = words_and_numbers(expected), words_and_numbers(found)
    if len(left) != len(right):
        return False
    for i, (one, other) in enumerate(zip(left, right)):
        if i % 2 == 0 or one == other:
            if i % 2 == 0 and one != other:
                return False
        elif mode == "times" and ("." in one or "." in other):
            continue
        elif mode.startswith("within "):
            if abs(float(one) - float(other)) > float(mode.split()[1]) * abs(float(one)):
                return False
        else:
            return False
    return True


def difference(expected, found, mode):
    """None if the printed lines are those expected; otherwise the first expected line that was not printed, as a message."""
    lines = found.splitlines()
    at, skip = 0, False
    for line in expected.splitlines():
        if line.strip() in ("…", "..."):
            skip = True
            continue
        while skip and at < len(lines) and not same_line(line, lines[at], mode):
            at += 1
        if at >= len(lines) or not same_line(line, lines[at], mode):
            return f"expected: {line}\n  printed:  {lines[at] if at < len(lines) else '(nothing more)'}"
        at += 1
        skip = False
    if not skip and at < len(lines):
        return f"printed more: {lines[at]}"
    return None
