"""The C interface as a careless caller uses it, in a process of its own:
c_calls.py LIBRARY files | calls SEED FIRST COUNT | cycles COUNT. `files` reads lines of import|option|merge,
file, output, keys of the option, and prints each status. `calls` prints the number and name of each case before it and
its status behind it, so that whoever started it knows what a crash ended; a call that should be refused and is not, or
says nothing, ends with !."""

import ctypes
import itertools
import json
import os
import random
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p


class Options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", POINTER(c_char_p)),
        ("layer_count", c_size_t),
        ("read_only", c_int),
        ("miss", c_int),
        ("no_jit", c_int),
        ("skip_pointer_checks", c_int),
        ("skip_canary", c_int),
        ("target", c_char_p),
        ("driver", c_char_p),
        ("trusted_keys", c_char_p),
    ]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64)]


class Vector(Structure):
    _fields_ = [("data", c_void_p), ("head", c_int64), ("token", c_int64)]


class Args(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, Tensor) for name in ("x", "y", "pre", "gate", "residual")),
        ("w", c_void_p),
        ("w_head", c_int64),
        ("w_row", c_int64),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("workspace_size", c_size_t),
        ("first_row", c_int64),
        ("rows", c_int64),
        *((name, Vector) for name in ("source", "target", "decay", "diagonal")),
        *((name, c_float) for name in ("alpha", "beta", "gamma", "decay_low", "decay_high")),
        ("w_unchanged", c_int),
    ]


class TuneOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("target", c_char_p),
        ("device", c_int),
        ("predict", c_int),
        ("threads", c_int),
        ("force", c_int),
        ("budget_s", c_double),
    ]


PROBLEM = b"forward,dtype=f16,B=1,T=160,D=64"
DEVICE_ERROR = 4
NUMBERS = [-1 << 63, -(1 << 31), -1, 0, 1, 3, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1]
SIZES = [0, 1, 4, 7, 8, 9, 15, 16, 100, 1 << 16, 1 << 31, 1 << 32, 1 << 47, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]
TEXTS = [
    None,
    b"",
    b"x",
    b"\n",
    b"\xff\xfe",
    b"sm_0",
    b"sm_70",
    b"a" * 100000,
    b"/",
    b"/no/such",
    b"%s%n",
    b"emulated:sm_70",
    b"emulated:",
    b"forward",
    PROBLEM,
    PROBLEM * 9,
]


class Api:
    def __init__(self, file):
        self.c = ctypes.CDLL(file)
        self.c.trigen_last_error.restype = c_char_p
        self.c.trigen_problem_fields.restype = c_char_p
        self.c.trigen_status_name.restype = c_char_p
        self.c.trigen_plan_workspace_size.restype = c_size_t
        for name in ("trigen_runtime_destroy", "trigen_plan_destroy"):
            getattr(self.c, name).argtypes = [c_void_p]
            getattr(self.c, name).restype = None
        self.c.trigen_plan_workspace_size.argtypes = [c_void_p]
        self.c.trigen_memory_allocate.argtypes = [c_void_p, c_int, c_size_t, POINTER(c_void_p)]
        self.c.trigen_memory_free.argtypes = [c_void_p, c_int, c_void_p]
        for name in ("trigen_memory_write", "trigen_memory_read"):
            getattr(self.c, name).argtypes = [c_void_p, c_int, c_void_p, c_void_p, c_size_t]
        self.c.trigen_problem_format.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p]
        self.c.trigen_problem_init.argtypes = [c_void_p, c_int, c_int, c_int64, c_int64, c_int64]
        fields = json.loads(self.c.trigen_problem_fields())
        self.problem_size = fields["struct_size"]
        self.fields = {field["name"]: field for field in fields["fields"]}
        self.runtime = c_void_p()
        self.plan = c_void_p()
        self.faulted = False

    def problem(self, **changes):
        data = ctypes.create_string_buffer(self.problem_size)
        c_size_t.from_buffer(data).value = self.problem_size
        assert self.c.trigen_problem_parse(PROBLEM, data) == 0, self.c.trigen_last_error()
        for name, value in changes.items():
            if name == "struct_size":
                c_size_t.from_buffer(data).value = value
            else:
                field = self.fields[name]
                (c_int if field["bytes"] == 4 else c_int64).from_buffer(data, field["offset"]).value = value
        return data

    def options(self, **changes):
        options = Options(struct_size=ctypes.sizeof(Options))
        for name, value in changes.items():
            setattr(options, name, value)
        return options

    def layers(self, *names):
        return {"layers": (c_char_p * max(len(names), 1))(*names), "layer_count": len(names)}

    def make(self, **options):
        """A runtime, or the status."""
        runtime = c_void_p()
        status = self.c.trigen_runtime_create(byref(self.options(**options)), byref(runtime))
        return status, runtime

    def once(self, call, **options):
        status, runtime = self.make(**options)
        if status == 0:
            status = call(runtime)
            self.c.trigen_runtime_destroy(runtime)
        return status

    def plan_of(self, runtime, problem, device=0):
        plan = c_void_p()
        status = self.c.trigen_plan_create(runtime, problem, device, byref(plan))
        self.c.trigen_plan_destroy(plan)
        return status

    def open(self):
        assert self.c.trigen_runtime_create(None, byref(self.runtime)) == 0, self.c.trigen_last_error()
        assert self.c.trigen_plan_create(self.runtime, self.problem(), 0, byref(self.plan)) == 0, (
            self.c.trigen_last_error()
        )
        self.tensors = {}
        for name, size in (("x", 160 * 64 * 2), ("y", 160 * 64 * 2), ("w", 160 * 160 * 2)):
            self.tensors[name] = c_void_p()
            assert self.c.trigen_memory_allocate(self.runtime, 0, size, byref(self.tensors[name])) == 0
            zeros = bytes(size)
            assert self.c.trigen_memory_write(self.runtime, 0, self.tensors[name], zeros, size) == 0

    def args(self, **changes):
        args = Args(struct_size=ctypes.sizeof(Args), w=self.tensors["w"])
        args.x.data, args.y.data = self.tensors["x"], self.tensors["y"]
        for name, value in changes.items():
            holder, _, field = name.rpartition("__")
            setattr(getattr(args, holder) if holder else args, field, value)
        return args

    def run(self, **changes):
        """A run and its end. After a fault of the kernel only the next process is well."""
        status = self.c.trigen_plan_run(self.plan, byref(self.args(**changes)), None)
        if status == 0:
            status = self.c.trigen_memory_read(self.runtime, 0, ctypes.create_string_buffer(2), self.tensors["y"], 2)
        self.faulted = status == DEVICE_ERROR
        return status


def cases(api):
    """(name, call, is it to be refused?) of every case; None: either is right."""
    c, null = api.c, None
    out = []

    def add(name, call, refused=None):
        out.append((name, call, refused))

    one = c_void_p()
    for name, words in {
        "trigen_problem_parse": (PROBLEM, api.problem()),
        "trigen_problem_init": (api.problem(), 0, 0, 1, 8, 8),
        "trigen_runtime_create": (null, byref(one)),
        "trigen_plan_create": (api.runtime, api.problem(), 0, byref(one)),
        "trigen_plan_describe": (api.plan, ctypes.create_string_buffer(8)),
        "trigen_plan_run": (api.plan, byref(api.args()), null),
        "trigen_memory_allocate": (api.runtime, 0, 8, byref(c_void_p())),
        "trigen_memory_write": (api.runtime, 0, api.tensors["y"], b"12345678", 8),
        "trigen_memory_read": (api.runtime, 0, ctypes.create_string_buffer(8), api.tensors["y"], 8),
        "trigen_counters": (ctypes.create_string_buffer(8),),
        "trigen_cache_export": (api.runtime, b"/no/such.trigen", null, 0, null, 0),
        "trigen_cache_import": (api.runtime, (c_char_p * 1)(b"/no/such"), 1),
        "trigen_cache_merge": (b"/no/such.trigen", (c_char_p * 1)(b"/no/such"), 1),
        "trigen_tune": (api.runtime, (c_char_p * 1)(b"x"), 1, null, null, null),
    }.items():
        for at, word in enumerate(words):
            if word is null or isinstance(word, int):
                continue
            given = [null if i == at else each for i, each in enumerate(words)]
            add(f"{name}, NULL as argument {at}", lambda name=name, given=given: getattr(c, name)(*given), True)
    add("trigen_xla_call(NULL)", lambda: (c.trigen_xla_call(null), 0)[1])
    for name in ("trigen_runtime_destroy", "trigen_plan_destroy"):
        add(f"{name}(NULL)", lambda name=name: getattr(c, name)(null) or 0)
    add("trigen_plan_workspace_size(NULL)", lambda: c.trigen_plan_workspace_size(null) * 0)
    for status in (-(1 << 31), -1, 8, 99, (1 << 31) - 1):
        add(f"trigen_status_name({status})", lambda status=status: 0 if c.trigen_status_name(status) else 9)
    for size in SIZES:
        add(
            f"a problem of {size} bytes",
            lambda size=size: api.plan_of(api.runtime, api.problem(struct_size=size)),
            True if size < 16 or size > 1 << 16 else None,
        )
        add(f"options of {size} bytes", lambda size=size: api.once(lambda _: 0, struct_size=size))
        add(f"arguments of {size} bytes", lambda size=size: api.run(struct_size=size))
        for name in ("trigen_plan_describe", "trigen_counters"):

            def sized(name=name, size=size):
                data = ctypes.create_string_buffer(1 << 16)
                c_size_t.from_buffer(data).value = size
                return getattr(c, name)(*([api.plan] if "plan" in name else []), data)

            if size <= 1 << 16:  # what is said to be larger must be
                add(f"{name}, a struct of {size} bytes", sized)
        add(
            f"tune options of {size} bytes",
            lambda size=size: c.trigen_tune(
                api.runtime, (c_char_p * 1)(b"x"), 1, byref(TuneOptions(struct_size=size, predict=1)), null, null
            ),
            True,
        )
        add(f"allocate {size}", lambda size=size: api.once(lambda runtime: allocate(api, runtime, size)))
        if size > 16384 * 4:
            add(
                f"write {size}",
                lambda size=size: c.trigen_memory_write(api.runtime, 0, api.tensors["y"], b"12345678", size),
                True,
            )
            add(
                f"read {size}",
                lambda size=size: c.trigen_memory_read(
                    api.runtime, 0, ctypes.create_string_buffer(8), api.tensors["y"], size
                ),
                True,
            )
        add(
            f"format into {size}",
            lambda size=size: c.trigen_problem_format(
                api.problem(), ctypes.create_string_buffer(200), min(size, 200), null
            ),
        )
        add(f"workspace of {size}", lambda size=size: api.run(workspace_size=size))
    for name, number in itertools.product(api.fields, NUMBERS):
        field = api.fields[name]
        value = number if field["bytes"] == 8 else ctypes.c_int(number & 0xFFFFFFFF).value
        add(
            f"problem.{name} = {value}",
            lambda name=name, value=value: api.once(
                lambda runtime: api.plan_of(runtime, api.problem(**{name: value})), no_jit=1
            ),
        )
    for tensor, name, number in itertools.product(
        ("x", "y", "pre", "gate", "residual"), ("batch", "head", "row"), NUMBERS
    ):
        if tensor in "xy":
            add(f"{tensor}.{name} = {number}", lambda key=f"{tensor}__{name}", number=number: api.run(**{key: number}))
    for name, number in itertools.product(("w_head", "w_row", "first_row", "rows"), NUMBERS):
        add(f"args.{name} = {number}", lambda name=name, number=number: api.run(**{name: number}))
    pointers = [
        0,
        1,
        2,
        4096,
        1 << 47,
        1 << 63,
        (1 << 64) - 16,
        (1 << 64) - 1,
        ctypes.addressof(ctypes.create_string_buffer(16)),
        api.tensors["x"].value + 2,
        api.tensors["x"].value - 64,
    ]
    for name, pointer in itertools.product(
        ("x__data", "y__data", "w", "bias", "workspace", "pre__data", "gate__data", "residual__data"), pointers
    ):
        add(f"args.{name} = {pointer:#x}", lambda name=name, pointer=pointer: api.run(**{name: pointer}))
    for text in TEXTS:
        short = repr(text[:20] if text else text)
        add(
            f"parse {short}",
            lambda text=text: c.trigen_problem_parse(text, api.problem()),
            not text or not text == PROBLEM,
        )
        add(
            f"target {short}",
            lambda text=text: api.once(lambda runtime: api.plan_of(runtime, api.problem()), target=text, no_jit=1),
        )
        add(
            f"driver {short}",
            lambda text=text: api.once(lambda runtime: api.plan_of(runtime, api.problem()), driver=text, no_jit=1),
        )
        add(
            f"layer {short}",
            lambda text=text: api.once(
                lambda runtime: api.plan_of(runtime, api.problem()), no_jit=1, **api.layers(text)
            ),
        )
        add(f"import {short}", lambda text=text: c.trigen_cache_import(api.runtime, (c_char_p * 1)(text), 1), True)
        add(f"merge {short}", lambda text=text: c.trigen_cache_merge(text, (c_char_p * 1)(text), 1), True)
        add(
            f"export {short}",
            lambda text=text: c.trigen_cache_export(api.runtime, text, null, 0, (c_char_p * 1)(b"nothing"), 1),
            True,
        )
        add(
            f"tune {short}",
            lambda text=text: c.trigen_tune(
                api.runtime,
                (c_char_p * 1)(text),
                1,
                byref(TuneOptions(ctypes.sizeof(TuneOptions), b"sm_0", 0, 1)),
                null,
                null,
            ),
            True,
        )
    for miss, device in itertools.product((-1, 0, 3, 99, (1 << 31) - 1), (-(1 << 31), -2, 1, 99, (1 << 31) - 1)):
        add(
            f"miss {miss}, device {device}",
            lambda miss=miss, device=device: api.once(
                lambda runtime: api.plan_of(runtime, api.problem(), device), miss=miss, no_jit=1
            ),
            True,
        )
    for level in (-1, 0, 4, 5, 99):
        add(f"log level {level}", lambda level=level: c.trigen_set_log(level, null, null))
    add(
        "import into a read_only runtime",
        lambda: api.once(
            lambda runtime: c.trigen_cache_import(runtime, (c_char_p * 1)(os.environb[b"TRIGEN_TEST_BUNDLE"]), 1),
            read_only=1,
            **api.layers(b"new.db"),
        ),
        True,
    )
    for budget, threads in ((float("nan"), 0), (float("inf"), 1), (-1.0, -1), (1e-300, -(1 << 31))):
        add(
            f"tune for {budget} s with {threads} threads",
            lambda budget=budget, threads=threads: c.trigen_tune(
                api.runtime,
                (c_char_p * 1)(b"grad_epilogue,dtype=f16,B=1,T=8,D=8,epilogue=gelu"),
                1,
                byref(TuneOptions(ctypes.sizeof(TuneOptions), b"sm_70", -1, 1, threads, 0, budget)),
                null,
                null,
            ),
        )

    def outlives():
        status, runtime = api.make()
        plan = c_void_p()
        status = status or c.trigen_plan_create(runtime, api.problem(), 0, byref(plan))
        c.trigen_runtime_destroy(runtime)
        status = status or c.trigen_plan_run(plan, byref(api.args()), null)
        c.trigen_plan_destroy(plan)
        return status

    add("a plan outlives its runtime", outlives, False)
    return out


def allocate(api, runtime, size):
    pointer = c_void_p()
    status = api.c.trigen_memory_allocate(runtime, 0, size, byref(pointer))
    return status or api.c.trigen_memory_free(runtime, 0, pointer)


def files(api):
    for line in sys.stdin:
        how, file, out, keys = (os.fsencode(word) for word in line.rstrip("\n").split("\t"))
        if how == b"merge":
            status = api.c.trigen_cache_merge(out, (c_char_p * 1)(file), 1)
        else:
            status = api.once(
                lambda runtime: api.c.trigen_cache_import(runtime, (c_char_p * 1)(file), 1),
                **api.layers(out),
                trusted_keys=keys if how == b"option" else None,
            )
        print(status, flush=True)


def calls(api, seed, first, count):
    api.open()
    every = cases(api)
    random.Random(seed).shuffle(every)
    for at in range(first, min(first + count, len(every))):
        name, call, refused = every[at]
        print(f"{at} {name}", end="", flush=True)
        status = call()
        wrong = (refused is not None and refused != (status != 0)) or (status != 0 and not api.c.trigen_last_error())
        print(f": {status}{' !' if wrong else ''}", flush=True)
        if api.faulted:
            return
    print("end", flush=True)


def cycles(library, count):
    import _ctypes

    for _ in range(count):
        api = Api(library)
        api.open()
        assert api.run() == 0, api.c.trigen_last_error()
        api.c.trigen_plan_destroy(api.plan)
        api.c.trigen_runtime_destroy(api.runtime)
        _ctypes.dlclose(api.c._handle)


if __name__ == "__main__":
    what, numbers = sys.argv[2], [int(word) for word in sys.argv[3:]]
    if what == "files":
        files(Api(sys.argv[1]))
    elif what == "calls":
        calls(Api(sys.argv[1]), *numbers)
    else:
        cycles(sys.argv[1], *numbers)
