"""Runs the program psring, which the package brings along: `psring` or `python -m psring`, with its arguments."""

from __future__ import annotations

import os
import sys

from ._library import environment_of_programs, folder_of_programs


def main() -> None:
    program = str(folder_of_programs() / "psring")
    try:
        os.execve(program, ["psring", *sys.argv[1:]], environment_of_programs())
    except OSError as error:
        sys.exit(f"psring: cannot start {program}: {error.strerror}; PSRING_BIN can name its folder")


if __name__ == "__main__":
    main()
