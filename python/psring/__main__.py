"""Runs the program psring, which the package brings along: `psring` or `python -m psring`, with its arguments."""

from __future__ import annotations

import os
import sys

from ._library import folder_of_programs


def main() -> None:
    program = str(folder_of_programs() / "psring")
    try:
        os.execv(program, ["psring", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"psring: cannot start {program}: {error.strerror}; PSRING_BIN can name its folder")


if __name__ == "__main__":
    main()
