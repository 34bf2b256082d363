"""trigen.jax beside what people write in JAX today, jitted, all arms in one run and in turn. Prints one JSON object a line.

    python bench/jax_ops.py                                        # the shapes of the mixers, forward and step
    python bench/jax_ops.py --shapes "32,512,1024;8,2048,1024" --dtype bfloat16 --rounds 31
    python bench/jax_ops.py --tune 10s                             # tunes the problems first, 10 s each
    python bench/jax_ops.py --out jax.jsonl                        # also into a file, line by line as each part ends
    python bench/jax_ops.py --shapes 2,16,8 --rounds 2 --calls 2   # on a CPU: does the script work? no figures

Arms: `tril` is jnp.tril(W) @ x, `dense` the same product without a mask (the time that cannot be had for masked
weights), `trigen`. Parts: `forward`, `step`: the value and both gradients for a given dy, and `sharded`: a step under
shard_map over all devices, whose batch is B a device and whose gradient of W is summed over them (part `step` of the
same shape is one device alone). `scan_forward` and `scan` are a forward and a step of W[t,s] = v[t] decay^(t-s), vectors
in float32; `tril` multiplies with the T x T matrix that jnp.where makes of them, `dense` is not there. One sample is
--calls calls between which nothing waits, on inputs that take turns; medians over rounds. `ratio` is tril's time over
the arm's: above 1 the arm is faster. A part that fails says so in its line, and the others go on (exit status 1)."""

import argparse
import itertools
import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import trigen
import trigen.jax as tj
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from timing import host_us, in_turn

SHAPES = "128,256,512;32,512,1024;16,1024,1024;8,2048,1024;4,4096,1024"


PRODUCTS = {
    "tril": lambda w, x: jnp.einsum("ts,bsd->btd", jnp.tril(w), x),
    "dense": lambda w, x: jnp.einsum("ts,bsd->btd", w, x),
    "trigen": lambda w, x: tj.triangular_conv1d(x, w),
}


def by_matrix(w, x):
    distance = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
    matrix = jnp.where(distance >= 0, w["v"][:, None] * w["decay"] ** jnp.abs(distance), 0)
    return jnp.einsum("ts,bsd->btd", matrix.astype(x.dtype), x)


SCANS = {"tril": by_matrix, "trigen": lambda w, x: tj.scan(x, target=w["v"], decay=w["decay"])}


def arms(part):
    products = SCANS if part.startswith("scan") else PRODUCTS
    if part.endswith("forward"):
        return {name: jax.jit(lambda w, x, dy, f=f: f(w, x)) for name, f in products.items()}

    def step(f):
        def run(w, x, dy):
            y, back = jax.vjp(f, w, x)
            return y, back(dy)

        return run

    if part == "sharded":
        mesh, every = Mesh(np.array(jax.devices()), ("data",)), P("data")

        def sharded(f):  # W is each device's own, so that its gradient is summed by name, once
            def run(w, x, dy):
                y, (dw, dx) = step(f)(varying(w), x, dy)
                return y, (jax.lax.psum(dw, "data"), dx)

            specs = dict(in_specs=(P(), every, every), out_specs=(every, (P(), every)))
            return jax.jit(jax.shard_map(run, mesh=mesh, **specs))

        return {name: sharded(f) for name, f in products.items()}
    return {name: jax.jit(step(f)) for name, f in products.items()}


def varying(w):
    return jax.lax.pcast(w, "data", to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(w, ("data",))


class WrongNumbers(Exception):
    pass


def bench(shape, dtype, part, arguments, say):
    batch, tokens, features = shape
    if part == "sharded":
        batch *= len(jax.devices())
    keys = jax.random.split(jax.random.key(0), 12)
    sets = [
        (
            {"v": jax.random.normal(keys[3 * i], (tokens,)), "decay": jnp.float32(0.95)}
            if part.startswith("scan")
            else jnp.tril(jax.random.normal(keys[3 * i], (tokens, tokens), dtype)),
            *(jax.random.normal(keys[3 * i + j], (batch, tokens, features), dtype) for j in (1, 2)),
        )
        for i in range(4)
    ]
    if part == "sharded":  # where a step reads them
        mesh = Mesh(np.array(jax.devices()), ("data",))
        places = [NamedSharding(mesh, P()), *[NamedSharding(mesh, P("data"))] * 2]
        sets = [tuple(jax.device_put(one, place) for one, place in zip(a_set, places)) for a_set in sets]
    functions = arms(part)
    if arguments.tune:
        with trigen.record() as seen:
            jax.block_until_ready(functions["trigen"](*sets[0]))
        seen.tune(budget=arguments.tune)
        tj.forget_plans()
        jax.clear_caches()
        functions = arms(part)
    results = {name: jax.block_until_ready(function(*sets[0])) for name, function in functions.items()}
    for one, two in zip(jax.tree.leaves(results["tril"]), jax.tree.leaves(results["trigen"])):
        worst = (
            float(jnp.abs(jnp.tril(one).astype(jnp.float32) - jnp.tril(two).astype(jnp.float32)).max())
            if one.ndim == 2
            else float(jnp.abs(one.astype(jnp.float32) - two.astype(jnp.float32)).max())
        )
        if not worst <= 0.05 * float(jnp.abs(one.astype(jnp.float32)).max()):
            raise WrongNumbers(f"trigen and tril differ by {worst}")
    turns = itertools.cycle(sets)
    samples = in_turn(
        {
            name: lambda function=function: host_us(
                lambda: function(*next(turns)), arguments.calls, jax.block_until_ready
            )
            for name, function in functions.items()
        },
        arguments.rounds,
    )
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, median in medians.items():
        say(
            part=part,
            shape=shape,
            devices=len(jax.devices()) if part == "sharded" else 1,
            dtype=jnp.dtype(dtype).name,
            arm=name,
            us=round(median, 2),
            ratio=round(medians["tril"] / median, 3),
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="B,T,D;...")
    parser.add_argument("--dtype", default="bfloat16", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--parts", default="forward,step")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--tune", help="budget for each problem")
    parser.add_argument("--out", help="also append the lines to this file")
    arguments = parser.parse_args()

    def say(**line):
        text = json.dumps(line)
        print(text, flush=True)
        if arguments.out:
            with open(arguments.out, "a") as out:
                out.write(text + "\n")

    say(
        jax=jax.__version__,
        trigen=trigen.__version__,
        device=str(jax.devices()[0].device_kind),
        platform=jax.default_backend(),
        date=time.strftime("%Y-%m-%d"),
    )
    status = 0
    for shape in arguments.shapes.split(";"):
        sizes = tuple(map(int, shape.split(",")))
        for part in arguments.parts.split(","):
            try:
                bench(sizes, jnp.dtype(arguments.dtype), part, arguments, say)
            except (WrongNumbers, trigen.TrigenError, jax.errors.JaxRuntimeError) as error:
                say(part=part, shape=sizes, dtype=arguments.dtype, error=f"{type(error).__name__}: {error}"[:500])
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
