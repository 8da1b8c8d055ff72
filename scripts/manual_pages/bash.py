"""The completion of bash, of all programs in one file."""

FUNCTIONS = r"""
# Completes the last item of a list that is separated by commas.
_psring_list() {
  local before=
  [[ $cur != *,* ]] || before=${cur%,*},
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "${cur##*,}")
  compopt -o nospace 2>/dev/null
}

_psring() {
  local program=${COMP_WORDS[0]##*/} cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} command=
  COMPREPLY=()
  # With = among COMP_WORDBREAKS, --option=value is three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $option == = ]]; then
    option=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [[ -n ${_psring_commands[$program]} ]]; then
    if ((COMP_CWORD > 1)); then
      command=" ${COMP_WORDS[1]}"
    elif [[ $cur != -* ]]; then
      mapfile -t COMPREPLY < <(compgen -W "${_psring_commands[$program]}" -- "$cur")
      return
    fi
  fi
  if [[ $option == -* ]]; then
    local words=${_psring_choices[$program$command $option]-${_psring_choices[$option]-}}
    local takes=${_psring_takes[$program$command $option]-${_psring_takes[$option]-}}
    case $takes in
      choice) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"); return ;;
      list) _psring_list "$words"; return ;;
      file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
      text) [[ $cur == -* ]] || return ;;  # a value may be left out
    esac
  fi
  if [[ $cur == -* ]]; then
    local options=${_psring_options[$program$command]-}
    [[ $options != *" @job"* ]] || options="${options/ @job/} $_psring_job"
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -F _psring"""


def kind(option):
    """What follows an option: nothing, a choice, a list of choices, a file, or a text that cannot be completed."""
    if not option.takes_value:
        return "nothing"
    if option.choices:
        return "list" if option.is_list else "choice"
    return "file" if option.takes_file else "text"


def completion(commands):
    programs = [command.program for command in commands if not command.name]
    of_job = max((command.job_options for command in commands), key=len)  # some commands leave a few out
    lines = ["# shellcheck shell=bash", f"# Completion of {', '.join(programs)}, made from the programs' table of options.", "",
             "declare -gA _psring_commands=("]
    for program in programs:
        names = [command.name for command in commands if command.program == program and command.name]
        if names:
            lines.append(f"  [{program}]='{' '.join(names)}'")
    lines += [")", f"_psring_job='{' '.join(name for option in of_job for name in option.names)}'",
              "declare -gA _psring_options=("]
    for command in commands:
        names = [name for option in command.options if not option.is_positional for name in option.names]
        names += ["@job"] if command.groups and command.job_options == of_job else [
            name for option in command.job_options for name in option.names]
        lines.append(f"  ['{command.title}']='{' '.join(names)}'")
    takes, choices = {}, {}
    for command in commands:
        for option in command.all_options:
            for name in option.names:
                # An option of a job means the same in each command; a command's own option of that name goes before it.
                key = name if option in of_job else f"{command.title} {name}"
                takes[key] = kind(option)
                if option.choices:
                    choices[key] = option.choices
    lines += [")", "declare -gA _psring_takes=("]
    lines += [f"  ['{key}']={value}" for key, value in takes.items()]
    lines += [")", "declare -gA _psring_choices=("]
    lines += [f"  ['{key}']='{' '.join(words)}'" for key, words in choices.items()]
    return "\n".join([*lines, ")"]) + FUNCTIONS + " " + " ".join(programs) + "\n"
