"""The completion of zsh, of all programs in one file."""

from .bash import kind


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def spec(option):
    """Returns the words for _arguments that describe an option."""
    text = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    value = option.value.strip("[]").replace(":", "\\:")
    action = {"nothing": "", "text": f":{value}: ", "file": f":{value}:_files", "choice": f":{value}:({' '.join(option.choices)})",
              "list": f":{value}:_values -s , {value} {' '.join(option.choices)}"}[kind(option)]
    if option.value.startswith("["):
        action = ":" + action  # the value may be left out
    if option.is_positional:
        begin = "*:" if option.repeats else ":" if option.required else "::"
        return [quote(f"{begin}{option.names[0]}:{'_files' if option.takes_file else ' '}")]
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    return [quote(f"{others}{name}{'=' if option.takes_value and name.startswith('--') else ''}[{text}]{action}")
            for name in option.names]


def completion(commands):
    programs = [command for command in commands if not command.name]
    of_job = max((command.job_options for command in commands), key=len)  # some commands leave a few out
    lines = [f"#compdef {' '.join(program.program for program in programs)}",
             "# Completion, made from the programs' table of options.", "", "_psring_job=("]
    lines += [f"  {word}" for option in of_job for word in spec(option)]
    lines.append(")")
    dispatch = []
    for program in programs:
        name = program.program
        lines += ["", f"_{name}() {{"]
        own = [command for command in commands if command.program == name and command.name]
        if not own:
            lines += ["  _arguments -s \\", " \\\n".join(f"    {word}" for option in program.options for word in spec(option)), "}"]
        else:
            lines += ["  local -a commands=("]
            lines += ["    " + quote(f"{command.name}:{command.help}") for command in own]
            lines += ["  )", "  if ((CURRENT == 2)); then", "    _describe command commands",
                      "    _arguments " + " ".join(word for option in program.options for word in spec(option)), "    return",
                      "  fi", "  local command=$words[2]", "  shift words", "  ((CURRENT--))", "  case $command in"]
            for command in own:
                shared = bool(command.groups) and command.job_options == of_job
                words = [word for option in (command.options if shared else command.all_options) for word in spec(option)]
                lines += [f"    {command.name})", "      _arguments -s \\",
                          " \\\n".join(f"        {word}" for word in words) + (" \\\n        $_psring_job" if shared else ""),
                          "      ;;"]
            lines += ["  esac", "}"]
        dispatch.append(f"  {name}) _{name} ;;")
    return "\n".join([*lines, "", "case $service in", *dispatch, "esac"]) + "\n"
