"""The bill of materials (scripts/sbom.py) names what a build holds of others, and ends with an error where it would leave something out."""

import json
import os
import subprocess
import sys

import pytest
from conftest import BUILD

BINARIES = ("libtrigen.so", "libtrigen_emulator.so", "trigen")


def sbom(repository, out, *builds):
    return subprocess.run(
        [sys.executable, str(repository / "scripts/sbom.py"), str(out), *map(str, builds)],
        capture_output=True,
        text=True,
    )


def test_what_this_build_links(repository, tmp_path):
    out = tmp_path / "trigen.cdx.json"
    done = sbom(repository, out, BUILD)
    assert done.returncode == 0, done.stderr
    made = json.loads(out.read_text())
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["bom-ref"]: part for part in made["components"]}
    for binary in BINARIES:
        (holds,) = [d["dependsOn"] for d in made["dependencies"] if d["ref"].endswith(f"/{binary}")]
        names = {parts[name]["name"] for name in holds}
        wanted = (
            {"libstdc++ and libgcc"}
            if "emulator" in binary
            else {"LLVM", "SQLite", "zstd", "libsodium", "libstdc++ and libgcc"}
        )
        assert wanted <= names, f"{binary}: {names}"
    for part in parts.values():
        assert part["version"]
        if part["name"] in ("LLVM", "SQLite", "zstd", "libsodium"):
            assert part["licenses"] and all(len(r["hashes"][0]["content"]) == 64 for r in part["externalReferences"]), (
                part
            )


@pytest.mark.parametrize("linked", ["/usr/bin/env", "a stranger's library.a"])
def test_what_nobody_named_is_an_error(repository, tmp_path, linked):
    strange = linked if os.path.isabs(linked) else str(tmp_path / linked)
    build = tmp_path / "build"
    build.mkdir()
    (build / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
    if strange != linked:
        (tmp_path / linked).write_text("")
    escaped = strange.replace(" ", "$ ")
    rules = ["rule link\n  command = cp $in $out"]
    for binary in BINARIES:
        rules.append(f"build {binary}: link {escaped}")
        (build / binary).write_text("")
    (build / "build.ninja").write_text("\n".join(rules) + "\n")
    done = sbom(repository, tmp_path / "out.json", build)
    assert done.returncode == 1 and strange in done.stderr and "no component of scripts/sbom.py" in done.stderr, (
        done.stderr
    )
    assert not (tmp_path / "out.json").exists()
