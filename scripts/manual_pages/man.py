"""Manual pages: one of each command of psring, and one of each other program."""

import re

from .table import Option


def escape(text):
    """Returns a text as roff: a hyphen is one that can be copied, and no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("~", "\\(ti").replace('"', "\\(dq").replace("^", "\\(ha")
    text = "".join(letter if ord(letter) < 128 else f"\\[u{ord(letter):04X}]" for letter in text)
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def sentence(text):
    return text if text.endswith((".", "!", "?")) else text + "."


def option_lines(option: Option):
    names = option.names if not option.is_positional else ()
    head = ", ".join(f"\\fB{escape(name)}\\fR" for name in names) or f"\\fI{escape(option.names[0])}\\fR"
    if option.takes_value:
        head += f" \\fI{escape(option.value)}\\fR"
    # A comma follows the first value of a list, which is written as it is typed.
    text = option.help[:1].upper() + option.help[1:] if re.match(r"[a-z]+[ .]", option.help) else option.help
    text = sentence(text) if text else ""
    if option.required:
        text += " Required."
    if option.default:
        text += f" Default: {option.default}."
    if option.needs:
        text += f" Needs: {', '.join(option.needs)}."
    return [".TP", head, escape(text.strip()) or "\\&"]


def footer_lines(sections):
    lines = []
    for section in sections:
        if not section.title:
            lines += [".SH NOTES", escape(section.entries[0][1])]
            continue
        lines.append(f'.SH "{escape(section.title.upper() if section.title == "Exit status" else section.title)}"')
        for name, text in section.entries:
            lines += [".TP", f"\\fB{escape(name)}\\fR", escape(text)]
    return lines


def header(title, help_text, version):
    name = title.replace(" ", "-")
    return [f'.TH {name.upper()} 1 "" "psring {version}" "psring"', ".nh", ".SH NAME",
            f"{escape(name)} \\- {escape(help_text)}"]


def synopsis(command):
    words = [f"\\fB{escape(command.title)}\\fR"]
    for option in command.options:
        if option.is_positional:
            name = f"\\fI{escape(option.names[0])}\\fR{'...' if option.repeats else ''}"
            words.append(name if option.required else f"[{name}]")
        elif option.required:
            words.append(f"\\fB{escape(option.names[-1])}\\fR \\fI{escape(option.value)}\\fR")
    return " ".join([*words, "[\\fIOPTION\\fR]..."])


def page(command, version, exit_status, others):
    lines = header(command.title, command.help, version)
    lines += [".SH SYNOPSIS", synopsis(command), ".SH OPTIONS"]
    for option in command.options:
        lines += option_lines(option)
    for title, options in command.groups:
        lines.append(f'.SS "{escape(title)}"')
        for option in options:
            lines += option_lines(option)
    lines += footer_lines(command.sections)
    if not any(section.title == "Exit status" for section in command.sections):
        lines += footer_lines([exit_status])
    return "\n".join([*lines, *see_also(others, command.title)]) + "\n"


def program_page(program, commands, version, exit_status, others, is_whole):
    """The page of a program with commands. is_whole: it has the commands' options, which have no pages of their own."""
    lines = header(program.title, program.help, version)
    lines += [".SH SYNOPSIS", f"\\fB{escape(program.title)}\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...", ".br",
              f"\\fB{escape(program.title)}\\fR \\fB\\-\\-help\\fR|\\fB\\-\\-version\\fR", ".SH COMMANDS"]
    for command in commands:
        title = command.name if is_whole else f"{command.title.replace(' ', '-')}(1)"
        lines += [".TP", f"\\fB{escape(title)}\\fR", escape(sentence(command.help[:1].upper() + command.help[1:]))]
    lines.append(".SH OPTIONS")
    for option in program.options:
        lines += option_lines(option)
    if is_whole:
        by_options = {}
        for command in commands:
            by_options.setdefault(command.options, []).append(command.name)
        for options, names in by_options.items():
            lines.append(f'.SS "{escape(", ".join(names))}"')
            for option in options:
                lines += option_lines(option)
    lines += footer_lines(section for section in program.sections if section.title)
    if not any(section.title == "Exit status" for section in program.sections):
        lines += footer_lines([exit_status])
    return "\n".join([*lines, *see_also(others, program.title)]) + "\n"


def see_also(titles, own):
    names = [title.replace(" ", "-") for title in titles if title != own]
    return ['.SH "SEE ALSO"', ",\n".join(f".BR {escape(name)} (1)" for name in names)]


def pages(commands, version):
    """Returns the pages: their texts by the names of their files."""
    programs = [command for command in commands if not command.name]
    exit_status = next(section for section in programs[0].sections if section.title == "Exit status")
    texts = {}
    for program in programs:
        own = [command for command in commands if command.program == program.program and command.name]
        has_pages = program.program == "psring"
        others = [each.title for each in (programs + own if has_pages else programs)]
        if own:
            texts[program.title] = program_page(program, own, version, exit_status, others, not has_pages)
        else:
            texts[program.title] = page(program, version, exit_status, others)
        if has_pages:
            texts.update({each.title: page(each, version, exit_status, [p.title for p in programs]) for each in own})
    return {f"{title.replace(' ', '-')}.1": text for title, text in texts.items()}
