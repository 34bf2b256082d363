"""python -m trigen.fleet: the program's fleet commands where shards meet in a store instead of a folder."""

import argparse
import json
import sys

from ..errors import TrigenError
from . import Place, merge, status, work


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trigen.fleet", description="Tuning by many machines; a PLACE is a folder or a URL of fsspec."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("place")
        return sub

    tune = verb(
        "work", "tune a part of a list and leave the results in the place; options of `trigen tune` follow after --"
    )
    tune.add_argument("--problems", required=True)
    tune.add_argument("--shard", default="auto")
    tune.add_argument("options", nargs="*")
    for name, text in (
        ("pull", "bring the shards that a folder lacks"),
        ("push", "leave a folder's shards in the place"),
    ):
        verb(name, text).add_argument("folder")
    base = verb("merge", "make one bundle of all shards")
    base.add_argument("-o", "--output", required=True)
    base.add_argument("--sign", metavar="KEY", help="sign the bundle with this secret key")
    look = verb("status", "holes by kind of device, as JSON; 1 where there is one")
    look.add_argument("--problems", required=True)
    given = parser.parse_args()
    try:
        if given.verb == "work":
            return 0 if work(given.place, given.problems, shard=given.shard, options=given.options) else 130
        if given.verb == "merge":
            print(merge(given.place, given.output, sign=given.sign), end="")
        elif given.verb == "status":
            found = status(given.place, given.problems)
            print(json.dumps(found, indent=2))
            return 1 if any(kind["holes"] for kind in found["kinds"]) else 0
        else:
            print(f"{len(getattr(Place(given.place), given.verb)(given.folder))} shards")
    except TrigenError as error:
        print(f"trigen: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
