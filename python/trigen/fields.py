"""The fields of a problem, one row each: Python's view of the table in generator/problem_fields.def. The C structure, the numbers of
names and the canonical text follow from it; loading libtrigen compares all of it with the library's own description."""

from __future__ import annotations

import ctypes
from typing import Dict, List, NamedTuple, Tuple


class Field(NamedTuple):
    name: str
    place: str = "key"  # of the text form: "first" (the op), "key", or "part" (of epilogue=)
    values: Tuple[str, ...] = ()  # of an enumeration, by number
    always: bool = False  # printed where it is the default, too

    @property
    def type(self):
        return ctypes.c_int if self.values or self.place == "part" else ctypes.c_int64


_DTYPES = ("f16", "bf16", "f32")

# In the order of the C structure.
FIELDS = (
    Field(
        "op",
        "first",
        (
            "forward",
            "grad_input",
            "grad_weight",
            "decode",
            "grad_epilogue",
            "gram",
            "scan",
            "scan_grad_input",
            "scan_grad_weight",
            "newton_schulz",
        ),
    ),
    Field("dtype", values=_DTYPES, always=True),
    Field("wdtype", values=_DTYPES),
    Field("math", values=("default", "simt", "tf32", "f16x3")),
    Field("layout", values=("btd", "bdt")),
    Field("fill", values=("lower", "upper")),
    Field("w", values=("dense", "toeplitz", "band")),
    *(Field(name, always=True) for name in ("B", "H", "T", "D", "K", "pad")),
    *(Field(name) for name in ("rows", "diag", "width", "align", "walign", "pointers")),
    Field("bias", "part"),
    Field("activation", "part", ("none", "gelu", "silu")),
    *(
        Field(name, "part")
        for name in ("pre", "gate", "residual", "accumulate", "zero_outside", "mirror", "grad_input")
    ),
)
BY_NAME: Dict[str, Field] = {field.name: field for field in FIELDS}
# In the order of the text form; epilogue= comes last.
KEYS = tuple("dtype B H T D K pad rows layout fill diag w width wdtype math align walign pointers".split())


def numbers(name: str) -> Dict[str, int]:
    """Of the names of an enumeration."""
    return {value: number for number, value in enumerate(BY_NAME[name].values)}


class CProblem(ctypes.Structure):
    """trigen_problem."""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [(field.name, field.type) for field in FIELDS]

    def __repr__(self) -> str:
        named = ((field, getattr(self, field.name)) for field in FIELDS)
        shown = (
            f"{field.name}={field.values[value] if 0 <= value < len(field.values) else value}"
            for field, value in named
            if field.always or field.name in ("op", "wdtype") or value
        )
        return f"<trigen problem {', '.join(shown)}>"


def description() -> dict:
    """The answer of trigen_problem_fields() of a library with the same fields."""
    parts = [field.name for field in FIELDS if field.place == "part"]
    return {
        "struct_size": ctypes.sizeof(CProblem),
        "fields": [
            {
                "name": name,
                "bytes": ctypes.sizeof(BY_NAME[name].type),
                "offset": getattr(CProblem, name).offset,
                "place": BY_NAME[name].place,
                "values": list(BY_NAME[name].values),
            }
            for name in ("op", *KEYS, *parts)
        ],
    }


def _difference(there, here) -> str:
    """The difference of one field's two rows."""
    if there is None or here is None:
        return "is not there" if there is None else "is not known here"
    unlike = [key for key in {**here, **there} if here.get(key) != there.get(key)]
    return ", ".join(f"{key} {there.get(key)} there, {here.get(key)} here" for key in unlike)


def differences(theirs: dict) -> List[str]:
    """Differences of another description, a sentence a field; empty when it is the same."""
    ours = description()
    here = {row["name"]: row for row in ours["fields"]}
    there = {row["name"]: row for row in theirs["fields"]}
    found = [
        f"{name}: {_difference(there.get(name), here.get(name))}"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]
    if not found and ours != theirs:
        found = [f"the size or the order is another: {theirs['struct_size']} bytes, {', '.join(there)}"]
    return found
