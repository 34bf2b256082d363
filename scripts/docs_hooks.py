"""What mkdocs cannot do by itself: pages made from the sources, and links that leave docs/.

The command line's page comes from the program's parser, C's from the public header; Python's is mkdocstrings'. A link from a page to a
file of the repository outside docs/ is checked and shown as that file's path, since the site does not hold the file.
"""
import os
import pathlib
import re
import subprocess

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def command_line():
    program = pathlib.Path(os.environ.get("TRIGEN_PROGRAM", ROOT / "build/trigen"))
    if not program.exists():
        raise PluginError(f"no program at {program}, whose parser makes the command line's page; build trigen_program, or name one in TRIGEN_PROGRAM")
    return subprocess.run([program, "help", "--format", "markdown"], check=True, capture_output=True, text=True).stdout


def prose(comment):
    """A block comment without its stars; text that is indented stays code."""
    lines = re.sub(r"^/\*|\*/$", "", comment.strip()).split("\n")
    lines = [re.sub(r"^( \* ?|   )", "", line).rstrip() if i else line.strip() for i, line in enumerate(lines)]
    out, code = [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented != code and line:
            out.append("")
            code = indented
        out.append("    " + line if indented else line.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_"))
    return "\n".join(out).strip("\n")


def header():
    """The C headers as a page: their comments are the text, their declarations the code between."""
    out = ["# The C interface", "", "`#include <trigen/trigen.h>`; what stays the same between versions: [the binary interface](../abi.md)."]
    for name, start, section in (("trigen.h", "/* Values are part", "Types"), ("trigen_memory.h", "/* Zero bytes", "trigen_memory.h"),
                                 ("trigen_tune.h", "typedef struct trigen_tune_options", "trigen_tune.h"), ("trigen_xla.h", "/* The handler:", "trigen_xla.h")):
        source = (ROOT / "runtime/include/trigen" / name).read_text()
        first, rest = re.match(r"(/\*.*?\*/)\n(.*)", source, re.S).groups()
        head = ["", prose(first), "", f"## {section}"] if name == "trigen.h" else ["", f"## {section}", "", prose(first)]
        out += head + declarations(rest[rest.index(start):rest.rindex("#ifdef __cplusplus")])
    return "\n".join(out) + "\n"


def declarations(rest):
    """Comments that begin a line are prose, the rest is code with its own comments."""
    out = []
    for part in re.split(r"(?m)^(/\*(?:[^*]|\*(?!/))*\*/)[ ]*\n", rest):
        if not part.strip():
            continue
        section = re.match(r"/\* ---- (.*) ---- \*/", part)
        if section:
            out += ["", "## " + section.group(1).capitalize()]
        elif part.startswith("/*"):
            out += ["", prose(part)]
        else:
            code = part.strip("\n").replace("TRIGEN_API ", "").replace(" TRIGEN_NOEXCEPT", "")
            out += ["", "```c", code, "```"]
    return out


def tracked_pages():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout
    return [ROOT / name for name in listed.splitlines()]


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", text))


def check_links():
    """Every relative link of every page of the repository, README.md and the folders' own among them, leads to a file."""
    broken = []
    for page in tracked_pages():
        if not page.exists():
            continue
        for _, target, _ in LINK.findall(without_code(page.read_text())):
            generated = (page.parent / target).resolve() in GENERATED
            if "://" not in target and not target.startswith("mailto:") and not generated and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    if broken:
        raise PluginError("links that lead nowhere:\n" + "\n".join(broken))


GENERATED = {ROOT / "docs/reference/cli.md": command_line, ROOT / "docs/reference/c.md": header}


REFERENCE = ("reference/", "environment")  # of pages that the navigation does not name


def titled(path):
    return {re.sub(r"^# *", "", path.read_text().split("\n", 1)[0]): str(path.relative_to(ROOT / "docs"))}


def listed(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from listed(value) if isinstance(value, list) else [value]


def on_config(config):
    """Folders of the navigation become their pages; pages that stand nowhere go to How-to, or to Reference."""
    docs = ROOT / "docs"
    for section in config.nav:
        entries = next(iter(section.values()))
        for entry in entries if isinstance(entries, list) else []:
            (name, value), = entry.items()
            if isinstance(value, str) and value.endswith("/"):
                pages = sorted((docs / value).glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
                entry[name] = [titled(path) for path in pages]
    known = set(listed(config.nav))
    for path in sorted(docs.rglob("*.md")):
        name = str(path.relative_to(docs))
        section = "Reference" if name.startswith(REFERENCE) else "How-to"
        if name not in known:
            next(s for s in config.nav if section in s)[section].append(titled(path))
    return config


def on_pre_build(config):
    check_links()


def on_files(files, config):
    for path, make in GENERATED.items():
        name = str(path.relative_to(ROOT / "docs"))
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown, page, config, files):
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replace(match):
        text, target, anchor = match.groups()
        path = (folder / target).resolve()
        if "://" in target or path.is_relative_to(ROOT / "docs"):
            return match.group(0)
        shown = f"`{path.relative_to(ROOT)}`"
        return shown if text.strip("`") in str(path) else f"{text} ({shown})"

    parts = re.split(r"(?ms)(^```.*?^```[^\n]*$)", markdown)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)
