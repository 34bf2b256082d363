"""The package's modules import one another in one direction: no circle, neither at load nor inside functions."""

import ast
from graphlib import TopologicalSorter


def modules_of(package):
    """{dotted name: names of the package's modules that it imports anywhere}."""
    files = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for file in package.rglob("*.py")
    }
    found = {}
    for name, file in files.items():
        home = name if file.name == "__init__.py" else name.rpartition(".")[0]
        used = found[name] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = ".".join(
                    home.split(".")[: len(home.split(".")) - node.level + 1] + ([node.module] if node.module else [])
                )
                used |= {one if one in files else base for one in (f"{base}.{alias.name}" for alias in node.names)}
    return found


def test_no_circle(repository):
    found = modules_of(repository / "python" / "trigen")
    assert {"trigen.torch.launch", "trigen.torch.problems"} <= found[
        "trigen.torch.cuda"
    ]  # the test reads imports at all
    packages = {"trigen", "trigen.torch"}  # what they gather may name them, for the version
    list(
        TopologicalSorter({name: used - packages for name, used in found.items()}).static_order()
    )  # CycleError names the circle


def test_a_circle_is_found(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from . import b\n")
    (package / "b.py").write_text("from .a import f\n")
    assert modules_of(package)["p.a"] == {"p.b"} and modules_of(package)["p.b"] == {"p.a"}
