"""The C interface through ctypes, without torch and without a device."""

import ctypes
import json
import re
import subprocess
import sys

import pytest
import trigen


def test_import_needs_neither_torch_nor_a_library(repository):
    code = "import sys; sys.modules['torch'] = None; import trigen; print(bool(trigen.is_available()), trigen.is_available().reason)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(repository / "python"), "TRIGEN_LIBRARY": "/nowhere/libtrigen.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("False libtrigen.so does not load: /nowhere/libtrigen.so: cannot open")
    assert "set TRIGEN_LIBRARY to the file" in done.stdout


def c_struct(header, name):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    fields = []
    for statement in body.split(";"):
        words = statement.replace("*", " * ").split()
        if words:
            kind = " ".join(words)
            first, *others = kind.split(",")
            fields += [first.split()[-1]] + [other.split()[-1] for other in others]
    return fields


def test_structures_are_the_headers(repository, library):
    header = (repository / "runtime/include/trigen/trigen.h").read_text()
    assert c_struct(header, "trigen_problem") == [name for name, _ in library.CProblem._fields_]
    assert c_struct(header, "trigen_runtime_options") == [name for name, _ in library.CRuntimeOptions._fields_]
    assert c_struct(header, "trigen_plan_info") == [name for name, _ in library.CPlanInfo._fields_]
    assert c_struct(header, "trigen_args") == [
        "struct_size",
        "x",
        "y",
        "pre",
        "gate",
        "residual",
        "w",
        "w_head",
        "w_row",
        "bias",
        "workspace",
        "workspace_size",
        "first_row",
        "rows",
        "source",
        "target",
        "decay",
        "diagonal",
        "alpha",
        "beta",
        "gamma",
        "decay_low",
        "decay_high",
        "w_unchanged",
    ]
    assert c_struct(header, "trigen_tensor") == ["data", "batch", "head", "row"]
    assert c_struct(header, "trigen_vector") == ["data", "head", "token"]
    for prefix, names in (
        ("", library.OPS),
        ("", library.DTYPES),
        ("", library.LAYOUTS),
        ("", library.FILLS),
        ("MATH_", library.MATHS),
        ("ACT_", library.ACTIVATIONS),
        ("MISS_", library.MISS),
    ):
        for name, value in names.items():
            assert re.search(rf"TRIGEN_{prefix}{name.upper()} = {value}\b", header), name


def test_the_fields_are_compared_whole_at_load(library, monkeypatch):
    from trigen import fields

    theirs = json.loads(library.load().trigen_problem_fields())
    assert fields.differences(theirs) == []
    for change, text in (
        (lambda rows: rows[0]["values"].append("solve"), r"op: values \[.*'solve'\] there, "),
        (lambda rows: rows[3].update(offset=0), "H: offset 0 there, "),
        (
            lambda rows: rows.append(dict(name="decay", bytes=4, offset=144, place="key", values=[])),
            "decay: is not known here",
        ),
        (lambda rows: rows.pop(), "grad_input: is not there"),
        (lambda rows: rows.insert(1, rows.pop(2)), "the size or the order is another"),
    ):
        other = json.loads(json.dumps(theirs))
        change(other["fields"])
        monkeypatch.setattr(library.json, "loads", lambda _, other=other: other)
        with pytest.raises(
            trigen.LibraryMissing, match=f"has other problems than this package: {text}.*install both from one wheel"
        ):
            library._declare(library.load())
        monkeypatch.undo()


def test_problem_text_round_trip(library):
    text = "forward,dtype=bf16,B=16,H=4,T=1024,D=256,K=1,pad=0,layout=bdt,fill=upper,diag=2,wdtype=f32,align=2,epilogue=bias+gelu"
    problem = trigen.parse_problem(text)
    assert (problem.B, problem.H, problem.T, problem.align, problem.activation) == (16, 4, 1024, 2, 1)
    assert trigen.format_problem(problem) == text
    assert ctypes.sizeof(library.CProblem) == problem.struct_size


@pytest.mark.parametrize(
    "text,message",
    [
        ("forward,dtype=bf17,B=1,T=2,D=3", "bf17"),
        ("forward,dtype=bf16,B=1,T=0,D=3", "T"),
        ("", "empty problem"),
        ("sideways,dtype=f16,B=1,T=2,D=3", "sideways"),
    ],
)
def test_a_bad_problem_is_a_bad_request(library, text, message):
    with pytest.raises(trigen.BadRequest, match=message) as caught:
        trigen.parse_problem(text)
    assert isinstance(caught.value, ValueError)


def test_runtime_options(library, tmp_path):
    with pytest.raises(ValueError, match="miss='later' is not known; allowed: first_choice, generic, error"):
        trigen.Runtime(miss="later")
    with pytest.raises(ValueError, match="layers is empty; allowed: cache files"):
        trigen.Runtime(layers=[])
    with pytest.raises(trigen.TrigenError, match="sm_12345"):
        trigen.Runtime(target="sm_12345")
    runtime = trigen.Runtime(layers=[tmp_path / "cache.db"], driver=str(tmp_path / "no_driver.so"))
    with pytest.raises(trigen.DeviceError, match="no_driver.so"):
        runtime.plan("forward,dtype=f16,B=1,T=8,D=8", 0)
    runtime.close()
    runtime.close()


def test_python_text_is_the_librarys(library):
    from trigen import problem

    for layout in ("btd", "bdt"):
        for T, D, K in ((8, 8, 1), (257, 1025, 4), (511, 64, 16), (30, 6, 3)):
            for dtype, wdtype, math in (
                ("bf16", "", ""),
                ("f16", "f32", ""),
                ("f32", "", "tf32"),
                ("f32", "f32", "simt"),
            ):
                for op, epilogue in (
                    ("forward", ("bias", "gelu", "pre", "gate", "residual")),
                    ("forward", ()),
                    ("grad_input", ("residual",)),
                    ("grad_weight", ("bias", "zero_outside")),
                ):
                    text = problem.text(
                        op,
                        dtype,
                        3,
                        2,
                        T,
                        D,
                        K,
                        K // 2,
                        layout=layout,
                        fill="upper",
                        diag=-1,
                        wdtype=wdtype,
                        math=math,
                        epilogue=epilogue,
                    )
                    assert trigen.format_problem(trigen.parse_problem(text)) == text


def test_configure_comes_first(monkeypatch, library, tmp_path):
    monkeypatch.setattr(library, "_shared", None)
    monkeypatch.setattr(library, "_shared_options", {})
    trigen.configure(layers=[tmp_path / "cache.db"], miss="generic")
    runtime = library.shared_runtime()
    assert library.shared_runtime() is runtime
    with pytest.raises(RuntimeError, match="call trigen.configure before the first operator"):
        trigen.configure(miss="error")
    library.close_shared_runtime()


def test_program(monkeypatch, tmp_path):
    monkeypatch.delenv("TRIGEN_PROGRAM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(trigen.LibraryMissing, match="no `trigen` program: not in this package, not on PATH"):
        trigen.program()
    script = tmp_path / "trigen"
    script.write_text('#!/bin/sh\n[ "$1" = tune ] || exit 2\ncat "$3"\nshift 3\necho "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"], arch="sm_70", budget="30s", options=["--json"])
    assert done.output == "forward,dtype=f16,B=1,T=8,D=8\n--arch sm_70 --budget 30s --json\n"
    monkeypatch.setattr(trigen.library, "_shared_options", {"layers": [tmp_path / "a.db", "b.db"]})
    done = trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"])
    assert done.output.splitlines()[-1] == f"--cache {tmp_path / 'a.db'} --cache b.db"
    with pytest.raises(ValueError, match="no problems to tune"):
        trigen.tune_problems([])
    script.write_text("#!/bin/sh\necho nothing works >&2\nexit 3\n")
    with pytest.raises(trigen.TrigenError, match="failed with 3: nothing works"):
        trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"], quiet=True)
