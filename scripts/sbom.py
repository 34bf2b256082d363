#!/usr/bin/env python3
"""Software bill of materials (CycloneDX 1.6): what the binaries of a build hold of others, read from the build itself.

Every file that a binary was compiled or linked from (Ninja's inputs, and the headers that the compiler recorded) lies in
trigen's tree or belongs to a component below; a file of nobody's is an error, so that nothing is linked unnamed. Versions and
hashes are those of the sources that were built (FOLDER/dsc of scripts/portable_sources.sh, the compiler's wheel in
build-portable/ziglang.json) or, in a build with this distribution's libraries, of its packages and their static archives.

Usage: scripts/sbom.py OUT BUILD...      OUT is replaced; BUILD: build-portable/x86_64, build, ...
"""

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import uuid
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = platform.freedesktop_os_release()["ID"]
BINARIES = ("libtrigen.so", "libtrigen_emulator.so", "trigen")  # the targets that are shipped

# name; source package of Debian's or Ubuntu's; folder of the portable sources, or of the ziglang wheel; SPDX licence; word of THIRD_PARTY_NOTICES
Component = namedtuple("Component", "name package folder licence notice")
COMPONENTS = (
    Component("LLVM", r"llvm-toolchain-\d+", "llvm", "Apache-2.0 WITH LLVM-exception", "LLVM"),
    Component("SQLite", "sqlite3", "sqlite", "blessing", "SQLite"),
    Component("zstd", "libzstd", "zstd", "BSD-3-Clause", "Zstandard"),
    Component("libsodium", "libsodium", "sodium", "ISC", "libsodium"),
    Component("CLI11", "cli11", "include/CLI", "BSD-3-Clause", "CLI11"),
    Component("nlohmann-json", "nlohmann-json3", "include/nlohmann", "MIT", "nlohmann-json"),
    Component("libstdc++ and libgcc", r"gcc-\d+", None, "GPL-3.0-or-later WITH GCC-exception-3.1", "libstdc++"),
    Component(
        "libc++, libc++abi and libunwind", None, r"libcxx(abi)?|libunwind", "Apache-2.0 WITH LLVM-exception", "libc++"
    ),
    Component("glibc", "glibc", "libc", "LGPL-2.1-or-later", None),  # shared but for its start files
    Component("Linux headers", "linux", None, "GPL-2.0-only WITH Linux-syscall-note", None),  # declarations alone
    Component("zig compiler_rt and headers", None, "", "MIT", None),
)


class UnnamedFile(Exception):
    pass


def run(*command, **options) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def sha256(path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def upstream(version: str) -> str:
    """A package's version without the distribution's parts: 1:14.0.6-12 is 14.0.6."""
    return re.sub(r"^\d+:|[+~](dfsg|ds).*|-[^-]*$", "", version)


def source_packages(folder: Path) -> dict:
    """Name to version and archives of the .dsc files."""
    found = {}
    for path in sorted(folder.glob("*.dsc")):
        text = path.read_text()
        field = lambda name: re.search(rf"^{name}: (.*)$", text, re.M).group(1)  # noqa: E731
        archives = re.search(r"^Checksums-Sha256:\n((?: .*\n)+)", text, re.M).group(1)
        found[field("Source")] = field("Version"), [line.split()[::2] for line in archives.splitlines()]
    return found


class Build:
    def __init__(self, folder: str):
        self.folder = Path(folder).resolve()
        cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (self.folder / "CMakeCache.txt").read_text(), re.M))
        self.glibc = cache.get("TRIGEN_GLIBC", "")
        sources = cache.get("TRIGEN_SOURCES", "")
        self.sources = Path(sources).resolve() if cache.get("TRIGEN_BUNDLED") == "ON" else None
        self.packages = source_packages(self.sources / "dsc") if self.sources else {}
        self.recorded = {}  # object file to the files that it was compiled from
        for block in run("ninja", "-C", self.folder, "--quiet", "-t", "deps").split("\n\n"):
            name, _, lines = block.strip().partition("\n")
            self.recorded[name.split(": #deps")[0]] = [line.strip() for line in lines.splitlines()]

    def files(self, binary: str) -> set:
        """Real paths of what the binary was made of."""
        inputs = shlex.split(
            run("ninja", "-C", self.folder, "--quiet", "-t", "inputs", binary)
        )  # as a shell would take them
        named = {header for name in inputs for header in self.recorded.get(name, ())}
        named.update(name for name in inputs if not re.search(r"\.so(\.[0-9.]+)?$", name))  # shared ones are not inside
        return {os.path.realpath(self.folder / name) for name in named if os.path.exists(self.folder / name)}

    def owners(self, files: set) -> dict:
        """Component to its version, archives and files, of files that are not trigen's own."""
        found, rest = {}, []
        for path in sorted(files):
            bundled = self.sources and path.startswith(f"{self.sources}/")
            zig = re.search(r"/site-packages/ziglang/(?:lib/)?(.*)", path)
            if bundled or zig:
                below = zig.group(1) if zig else path[len(str(self.sources)) + 1 :]
                component = next((c for c in COMPONENTS if self.holds(c, below, bool(zig))), None)
                if not component:
                    raise UnnamedFile(path)
                found.setdefault(component, {"files": []})["files"].append(path)
            elif not path.startswith((f"{self.folder}/", f"{ROOT}/")):
                rest.append(path)
        for component, facts in found.items():
            facts.update(self.bundled(component, facts["files"]))
        for package, version, path in self.installed(rest):
            component = next((c for c in COMPONENTS if c.package and re.fullmatch(c.package, package)), None)
            if not component:
                raise UnnamedFile(f"{path} (of the package {package})")
            facts = found.setdefault(component, {"files": [], "package": package, "full": version, "archives": []})
            facts["version"] = upstream(version)
            facts["files"].append(path)
            if path.endswith(".a"):
                facts["archives"].append((sha256(path), os.path.basename(path)))
        return found

    @staticmethod
    def holds(component, below: str, zig: bool) -> bool:
        if component.folder is None or (component.package is None or component.folder == "libc") != zig:
            return False
        return component.folder == "" or re.match(rf"(?:{component.folder})/", below) is not None

    def bundled(self, component, files: list) -> dict:
        for name, (version, archives) in self.packages.items():
            if component.package and re.fullmatch(component.package, name):
                return {"package": name, "full": version, "version": upstream(version), "archives": archives}
        report = json.loads((self.sources.parent / "ziglang.json").read_text())["install"][0]
        wheel = report["download_info"]
        facts = {
            "version": report["metadata"]["version"],
            "archives": [(wheel["archive_info"]["hashes"]["sha256"], wheel["url"].rsplit("/", 1)[1])],
        }
        if component.folder == "libc":
            facts["version"] = self.glibc
        elif component.folder:
            header = next(path for path in files if path.endswith("libcxx/include/__config"))
            number = int(re.search(r"define _LIBCPP_VERSION (\d+)", Path(header).read_text()).group(1))
            facts["version"] = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        return facts

    @staticmethod
    def installed(paths: list):
        """Source package, its version and path, of files that dpkg knows; the first unknown one is an error."""
        if not paths:
            return
        lines = subprocess.run(["dpkg", "-S", *paths], capture_output=True, text=True).stdout.splitlines()
        owner = {path: package.split(",")[0] for package, path in (line.split(": ", 1) for line in lines)}
        for path in paths:
            if path not in owner:
                raise UnnamedFile(path)
        query = run(
            "dpkg-query",
            "-W",
            "-f",
            "${binary:Package} ${source:Package} ${source:Version}\n",
            *sorted(set(owner.values())),
        )
        source = {line.split()[0]: line.split()[1:] for line in query.splitlines()}
        for path in paths:
            yield (*source[owner[path]], path)


def entry(component, facts: dict, notices: str) -> dict:
    if component.notice and component.notice not in notices:
        raise SystemExit(f"sbom: THIRD_PARTY_NOTICES has no section for {component.name}; add its licence there")
    key = "expression" if " WITH " in component.licence else "license"
    said = {
        "type": "library",
        "bom-ref": f"{component.name}@{facts.get('full', facts['version'])}",
        "name": component.name,
        "version": facts["version"],
        "licenses": [{key: component.licence if key == "expression" else {"id": component.licence}}],
    }
    if "package" in facts:
        said["purl"] = f"pkg:deb/{DISTRIBUTION}/{facts['package']}@{facts['full'].replace('+', '%2B')}?arch=source"
    elif facts["archives"] and "ziglang" in facts["archives"][0][1]:
        said["properties"] = [
            {"name": "trigen:from", "value": "pkg:pypi/ziglang@" + facts["archives"][0][1].split("-")[1]}
        ]
    if facts["archives"]:
        said["externalReferences"] = [
            {
                "type": "source-distribution" if not name.endswith((".a", ".whl")) else "distribution",
                "url": name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            for digest, name in sorted(map(tuple, facts["archives"]))
        ]
    return said


def bill(folders: list) -> dict:
    version = re.search(r"^project\(trigen VERSION ([0-9.]*)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
    notices = "".join(
        line for line in (ROOT / "THIRD_PARTY_NOTICES").read_text().splitlines(True) if line.startswith("==")
    )
    components, dependencies = {}, []
    for folder in folders:
        build = Build(folder)
        for binary in BINARIES:
            if not (build.folder / binary).exists():
                sys.exit(f"sbom: no {binary} in {folder}; build it first")
            holds = [entry(c, facts, notices) for c, facts in build.owners(build.files(binary)).items()]
            components.update((said["bom-ref"], said) for said in holds)
            name = f"{build.folder.name}/{binary}"
            components[name] = {
                "type": "file",
                "bom-ref": name,
                "name": name,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": sha256(build.folder / binary)}],
            }
            dependencies.append({"ref": name, "dependsOn": sorted(said["bom-ref"] for said in holds)})
    dependencies.append({"ref": "trigen", "dependsOn": [d["ref"] for d in dependencies]})
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    body = {
        "metadata": {
            "timestamp": run("date", "-u", "-d", f"@{seconds}", "+%Y-%m-%dT%H:%M:%SZ").strip(),
            "tools": {"components": [{"type": "application", "name": "trigen's scripts/sbom.py", "version": version}]},
            "component": {
                "type": "library",
                "bom-ref": "trigen",
                "name": "trigen",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": f"pkg:pypi/trigen@{version}",
            },
        },
        "components": [components[name] for name in sorted(components)],
        "dependencies": dependencies,
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))  # the same release has the same number
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **body,
    }


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        made = bill(sys.argv[2:])
    except UnnamedFile as error:
        sys.exit(
            f"sbom: the build used {error}, which no component of scripts/sbom.py holds; name it there, with its licence"
        )
    except subprocess.CalledProcessError as error:
        sys.exit(f"sbom: {' '.join(map(str, error.cmd[:5]))} ended with {error.returncode}: {error.stderr.strip()}")
    Path(sys.argv[1]).write_text(json.dumps(made, indent=1) + "\n")
    for part in made["components"]:
        if part["type"] == "library":
            print(f"{part['name']} {part['version']}")


if __name__ == "__main__":
    main()
