"""The completions of fish: a file a program."""

from .bash import kind


def quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def line(program, condition, option):
    words = [f"complete -c {program}", *([f"-n {quote(condition)}"] if condition else [])]
    if option.is_positional:
        return None
    for name in option.names:
        words.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
    takes = kind(option)
    if takes == "list":
        words.append(f"-x -a {quote(f'(__fish_append , {chr(32).join(option.choices)})')}")
    elif takes == "choice":
        words.append(f"-x -a {quote(' '.join(option.choices))}")
    elif takes == "file":
        words.append("-r -F")
    elif takes == "text":
        words.append("-x")
    return " ".join([*words, f"-d {quote(option.help)}"])


def completions(commands):
    """Returns the texts by the names of the files."""
    texts = {}
    for program in (command for command in commands if not command.name):
        name = program.program
        lines = [f"# Completion of {name}, made from the program's table of options."]
        own = [command for command in commands if command.program == name and command.name]
        first = "__fish_use_subcommand" if own else ""
        lines += [line(name, first, option) for option in program.options if not option.is_positional]
        for command in own:
            lines.append(f"complete -c {name} -n {first} -f -a {command.name} -d {quote(command.help)}")
        for command in own:
            seen = f"__fish_seen_subcommand_from {command.name}"
            lines += [line(name, seen, option) for option in command.options if not option.is_positional]
        for option in dict.fromkeys(option for command in own for option in command.job_options):
            seen = " ".join(command.name for command in own if option in command.job_options)
            lines.append(line(name, f"__fish_seen_subcommand_from {seen}", option))
        texts[f"{name}.fish"] = "\n".join(lines) + "\n"
    return texts
