#!/usr/bin/env python3
"""The commands that a page prints for its reader: `page_commands.py sh PAGE` prints `typed COMMAND` for each command of its ```sh blocks, for a bash
that has a function of this name; `page_commands.py python PAGE` its ```python blocks as one program. Other blocks (```text: output) are
left out."""

import re
import shlex
import subprocess
import sys


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def commands(text):
    """The commands of the sh blocks: lines, or as many as bash needs for a whole one."""
    for block in blocks(text, "sh"):
        command = ""
        for line in block.splitlines():
            command += line
            whole = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True)
            if line.endswith("\\") or whole.returncode != 0 or "here-document" in whole.stderr:
                command += "\n"
            else:
                if re.sub(r"#.*", "", command).strip():
                    yield command
                command = ""
        if command:
            sys.exit(f"page_commands: no whole command: {command}")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("sh", "python"):
        sys.exit("page_commands: usage: page_commands.py sh|python PAGE")
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    if sys.argv[1] == "python":
        print("\n".join(blocks(text, "python")))
    else:
        print("\n".join("typed " + shlex.quote(command) for command in commands(text)))


if __name__ == "__main__":
    main()
