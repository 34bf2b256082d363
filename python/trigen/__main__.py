"""The `trigen` command of the wheel: runs the program that the wheel carries, or, for conda's package without one, the environment's."""

import os
import sys
from pathlib import Path


def _program() -> str:
    carried = Path(__file__).resolve().parent / "bin" / "trigen"
    installed = Path(sys.prefix) / "bin" / "trigen"
    if not carried.exists() and installed.exists():
        with open(installed, "rb") as file:
            if file.read(4) == b"\x7fELF":  # a script of that name would call this module again
                return str(installed)
    return str(carried)


def main() -> int:
    program = os.environ.get("TRIGEN_PROGRAM") or _program()
    if not os.path.exists(program):
        print(
            f"trigen: {program} does not exist: this package was built without the program; set TRIGEN_PROGRAM to it",
            file=sys.stderr,
        )
        return 1
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
