"""Packs a libFuzzer corpus into one text file, a line of escapes for each input, and unpacks it: found.py pack|unpack FOLDER FILE."""

import hashlib
import pathlib
import sys

action, folder, file = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
if action == "pack":
    lines = [path.read_bytes().decode("latin-1").encode("unicode_escape") for path in folder.iterdir()]
    file.write_bytes(b"".join(line + b"\n" for line in sorted(lines)))
else:
    folder.mkdir(parents=True, exist_ok=True)
    for line in file.read_bytes().splitlines():
        data = line.decode("unicode_escape").encode("latin-1")
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
