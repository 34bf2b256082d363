"""Hooks for mkdocs: pages made from the sources, and links that leave docs/.

The command line's page comes from the program's parser, C's from the public header; Python's is mkdocstrings', whose docstrings are plain
text. A link from a page to a file of the repository outside docs/ is checked and shown as that file's path, since the site does not hold the
file. A page that lost an asterisk, or shows an escape, fails the build.
"""

import os
import pathlib
import re
import subprocess

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def command_line():
    program = pathlib.Path(os.environ.get("TRIGEN_PROGRAM", ROOT / "build/trigen"))
    if not program.exists():
        raise PluginError(
            f"no program at {program}, whose parser makes the command line's page; build trigen_program, or name one in TRIGEN_PROGRAM"
        )
    return subprocess.run([program, "help", "--format", "markdown"], check=True, capture_output=True, text=True).stdout


def plain(text):
    """Text that is no Markdown but for its `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if i % 2 else re.sub(r"([*_\[\\])", r"\\\1", part).replace("<", "&lt;") for i, part in enumerate(parts)
    )


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
        out.append("    " + line if indented else plain(line))
    return "\n".join(out).strip("\n")


def docstring(text):
    """A docstring as Markdown: lines `name  what it is`, in two columns, are a list of definitions; indented paragraphs are code."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text):
        column, block = 0, []
        for line in paragraph.split("\n"):
            entry = re.match(r"\*{0,2}\w+(?:, \*{0,2}\w+)* {2,}(?=\S)", line)
            if entry or (column and line[:1] != " " and line[column - 1 : column] == " "):
                column = entry.end() if entry else column
                block += ["", f"`{line[:column].strip()}`", ":   " + plain(line[column:])]
            else:
                block.append(
                    "    " + (plain(line.strip()) if column else line) if column or paragraph[0] == " " else plain(line)
                )
        out += block + [""]
    return "\n".join(out)


class Docstrings(griffe.Extension):
    """mkdocstrings' reading of the sources, with the docstrings above."""

    def on_object(self, *, obj, loader, **_):
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = docstring(obj.docstring.value)


def header():
    """The C headers as a page: their comments are the text, their declarations the code between."""
    out = [
        "# The C interface",
        "",
        "`#include <trigen/trigen.h>`; what stays the same between versions: [the binary interface](../abi.md).",
    ]
    for name, start, section in (
        ("trigen.h", "/* Values are part", "Types"),
        ("trigen_memory.h", "/* Zero bytes", "trigen_memory.h"),
        ("trigen_tune.h", "typedef struct trigen_tune_options", "trigen_tune.h"),
        ("trigen_xla.h", "/* The handler:", "trigen_xla.h"),
    ):
        source = (ROOT / "runtime/include/trigen" / name).read_text()
        first, rest = re.match(r"(/\*.*?\*/)\n(.*)", source, re.S).groups()
        head = (
            ["", prose(first), "", f"## {section}"] if name == "trigen.h" else ["", f"## {section}", "", prose(first)]
        )
        out += head + declarations(rest[rest.index(start) : rest.rindex("#ifdef __cplusplus")])
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
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
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
            if (
                "://" not in target
                and not target.startswith("mailto:")
                and not generated
                and not (page.parent / target).exists()
            ):
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
    config.site_name += " " + re.search(
        r"project\(trigen VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()
    ).group(1)
    docs = ROOT / "docs"
    for section in config.nav:
        entries = next(iter(section.values()))
        for entry in entries if isinstance(entries, list) else []:
            ((name, value),) = entry.items()
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


def damaged(html):
    """Marks that Markdown took for its own in a page's HTML: emphasis that begins or ends within a word, and escapes that are seen."""
    text = re.sub(r"(?s)<(pre|script|style)\b.*?</\1>", "", html)
    words = re.sub(r"(?s)<code\b.*?</code>", "`", text)
    found = re.findall(r".{0,40}(?:[\w\])]<(?:em|strong)>|</(?:em|strong)>[\w\[(]).{0,40}", words)
    return found + re.findall(r".{0,40}\\(?:&lt;|&gt;|[<*_|\[]).{0,40}", text)


def on_page_content(html, page, config, files):
    found = damaged(html)
    if found:
        raise PluginError(
            f"{page.file.src_uri}: an asterisk or an escape was taken for Markdown: write it as `code`, or with one backslash:\n"
            + "\n".join(found)
        )


def on_post_page(output, page, config):
    """Read without a network: a page loads nothing from elsewhere."""
    loaded = re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(?:https?:)?//[^>]*>', output)
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads from a network:\n" + "\n".join(loaded))


def on_pre_build(config):
    check_links()


def on_files(files, config):
    for path, make in GENERATED.items():
        name = str(path.relative_to(ROOT / "docs"))
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=make()))
    return files


def quoted(match):
    """The block of README.md that a page names: <!-- README.md: Install, sh -->."""
    heading, language = match.groups()
    block = re.search(
        rf"(?ms)^## {re.escape(heading)}$(?:(?!^## ).)*?(^```{language}\n.*?^```$)", (ROOT / "README.md").read_text()
    )
    if not block:
        raise PluginError(
            f"README.md has no block of {language} under '{heading}'; a page shows it by {match.group(0)}"
        )
    return block.group(1)


def on_page_markdown(markdown, page, config, files):
    markdown = re.sub(r"<!-- README\.md: (.*), (\w+) -->", quoted, markdown)
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
