"""The `trigen` command of the wheel: runs the program that the wheel carries."""

import os
import sys
from pathlib import Path


def main() -> int:
    program = os.environ.get("TRIGEN_PROGRAM") or str(Path(__file__).resolve().parent / "bin" / "trigen")
    if not os.path.exists(program):
        print(f"trigen: {program} does not exist: this package was built without the program; set TRIGEN_PROGRAM to it", file=sys.stderr)
        return 1
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
