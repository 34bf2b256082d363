"""Part `step` of torch_ops.py: forward and gradients of one token mixer, every arm in one run."""

import contextlib
import functools

import torch
import torch.nn.functional as F
import trigen
import trigen.torch as tt
from timing import Clock, capture, median

CHAIN = 8
# {name: (autocast dtype or None, dtype of x, torch.set_float32_matmul_precision)}; weights are float32 in all of them.
PRECISIONS = {
    "bfloat16": (torch.bfloat16, torch.bfloat16, "high"),
    "float16": (torch.float16, torch.float16, "high"),
    "f32": (None, torch.float32, "highest"),
    "tf32": (None, torch.float32, "high"),
}


class Floor(torch.autograd.Function):
    """The least that a derivative written in Python costs: the same tensors kept and returned, nothing checked, nothing launched."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.bias = bias.detach()
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return torch.empty_like(grad), torch.empty_like(weight), torch.empty_like(ctx.bias)


def triangle(weight):
    """The masked weight of W[..., T, T, K]."""
    return (
        torch.tril(weight.movedim(-1, 0)).movedim(0, -1)
        if weight.shape[-1] > 1
        else torch.tril(weight.squeeze(-1)).unsqueeze(-1)
    )


def conv(x, weight, bias):
    return F.conv1d(x, weight, bias, padding="same")


def conv_data(x, weight, bias):
    weight.data = triangle(weight.data)
    return conv(x, weight, bias)


def conv_graph(x, weight, bias):
    return conv(x, triangle(weight), bias)


def tril_matmul(x, weight, bias):
    return torch.matmul(torch.tril(weight.squeeze(-1)), x) + bias.to(x.dtype).unsqueeze(-1)


def unfolded_matmul(x, weight, bias):
    """Tap-major: one product of [T, K*T] with the K shifted copies of x."""
    taps, pad = weight.shape[-1], (weight.shape[-1] - 1) // 2
    shifted = F.pad(x, (pad, taps - 1 - pad)).unfold(2, x.shape[2], 1)  # [B, T, K, D]
    flat = shifted.transpose(1, 2).reshape(x.shape[0], -1, x.shape[2])
    return torch.matmul(triangle(weight).permute(0, 2, 1).flatten(1), flat) + bias.to(x.dtype).unsqueeze(-1)


def one_product(dy, x):
    """dW as one product over (b, d): both operands are copied to [T, B*D]."""
    return torch.matmul(dy.transpose(0, 1).flatten(1), x.transpose(0, 1).flatten(1).t())


def product_a_batch(dy, x):
    """dW as one product a batch, summed afterwards: no copies, but B of T*T to write and read."""
    return torch.bmm(dy, x.transpose(1, 2)).sum(0, dtype=torch.float32)


def gradients(ctx, dy, weight_gradient):
    x, square = ctx.saved_tensors
    shape, dtype, bias_dtype = ctx.kinds
    dx = torch.matmul(square.t(), dy)
    return dx, weight_gradient(dy, x).to(dtype).view(shape), dy.sum((0, 2), dtype=torch.float32).to(bias_dtype)


class ThreeProducts(torch.autograd.Function):
    """Hand-written code for speed: three dense products on a weight that is masked already, nothing else. The
    weight's gradient is dense, too: a loop that masks the weight after the optimizer's step need not mask that."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        square = weight.squeeze(-1).to(x.dtype)
        ctx.save_for_backward(x, square)
        ctx.kinds = weight.shape, weight.dtype, bias.dtype
        return torch.baddbmm(bias.to(x.dtype).view(1, -1, 1), square.expand(x.shape[0], -1, -1), x)

    @staticmethod
    def backward(ctx, dy):
        return gradients(ctx, dy, one_product)


class ThreeProductsSummed(ThreeProducts):
    @staticmethod
    def backward(ctx, dy):
        return gradients(ctx, dy, product_a_batch)


def three_products(x, weight, bias):
    return ThreeProducts.apply(x, weight, bias)


def three_products_summed(x, weight, bias):
    return ThreeProductsSummed.apply(x, weight, bias)


def heads_loop(x, weight, bias):
    parts = [
        torch.matmul(torch.tril(w.squeeze(-1)), part) + b.to(part.dtype).unsqueeze(-1)
        for part, w, b in zip(x.chunk(weight.shape[0], 2), weight, bias)
    ]
    return torch.cat(parts, 2)


def heads_einsum(x, weight, bias):
    heads = weight.shape[0]
    y = torch.einsum("hts,bshd->bthd", torch.tril(weight.squeeze(-1)), x.unflatten(2, (heads, -1)))
    return (y + bias.to(x.dtype).t().unsqueeze(-1)).flatten(2)


def heads_loop_conv(x, weight, bias):
    return torch.cat([conv(part, triangle(w), b) for part, w, b in zip(x.chunk(weight.shape[0], 2), weight, bias)], 2)


def mixers_of(precision):
    """{name: function}: trigen, for float32 also with its other ways to full precision."""
    others = {
        f"trigen {math}": functools.partial(tt.triangular_conv1d, math=math)
        for math in sorted(set(trigen.library.MATHS) - {"default", "simt", "tf32"})
    }
    return {"trigen": tt.triangular_conv1d, **(others if precision == "f32" else {})}


def arms_of(K, H, compiled, precision, autotune=False):
    """{name: function}: what models of this kind run today, and trigen."""
    if H > 1:
        plain = {"loop of conv1d": heads_loop_conv} if K > 1 else {"loop of matmul": heads_loop, "einsum": heads_einsum}
        best = None if K > 1 else heads_einsum
    elif K > 1:
        plain, best = (
            {
                "masked conv1d (weight.data)": conv_data,
                "masked conv1d (tril in the graph)": conv_graph,
                "unfold + matmul": unfolded_matmul,
            },
            conv_graph,
        )
    else:
        plain, best = (
            {
                "masked conv1d (weight.data)": conv_data,
                "masked conv1d (tril in the graph)": conv_graph,
                "tril + matmul": tril_matmul,
                "three products by hand, W masked once": three_products,
                "three products by hand, dW a batch each": three_products_summed,
            },
            tril_matmul,
        )
    if compiled and best is not None:
        plain[f"compiled {best.__name__}"] = torch.compile(best, dynamic=False)
        if autotune:
            # without CUDA graphs of its own: every arm is captured here
            plain[f"max-autotune {best.__name__}"] = torch.compile(
                best, dynamic=False, mode="max-autotune-no-cudagraphs"
            )
            if K == 1 and H == 1:
                plain["max-autotune three_products"] = torch.compile(
                    three_products, dynamic=False, mode="max-autotune-no-cudagraphs"
                )
    return {**plain, **mixers_of(precision)}


# Lower bounds of an operator in eager mode: steps around an operator that launches nothing. No arms of a comparison.
FLOORS = {
    "a Python derivative that launches nothing": Floor.apply,
    "a view, with the gradient of x alone": lambda x, weight, bias: x.view_as(x),
}


class WrongArm(Exception):
    """trigen does not run, or an arm computes something else."""


class Arm:
    """A mixer with parameters of its own (one arm replaces its weight's memory); `count` of them for the chain."""

    def __init__(self, mixer, weight, bias, count):
        self.mixer = mixer
        self.layers = [(torch.nn.Parameter(weight.clone()), torch.nn.Parameter(bias.clone())) for _ in range(count)]
        self.leaves = [parameter for layer in self.layers for parameter in layer]
        self.held = []
        self.is_floor = mixer in FLOORS.values()

    def hold(self):
        """Keeps the memory that the parameters have now: a graph captured next reads it at every replay, also when an arm has put
        other memory in its place."""
        self.held += [leaf.data for leaf in self.leaves]


def bench_step(report, shape, precision, device, rounds=15, repeats=32, compiled=True, chain=True, autotune=False):
    """One line: for each arm microseconds of a step in eager mode, the same with autograd on the calling thread, a step within a chain of
    eight (eager), a step as a CUDA graph, forward alone as a graph, and gradients, the difference of the two; beside them, what a step costs
    around an operator that launches nothing."""
    B, T, D, K, H = shape
    torch._dynamo.reset()  # a function is compiled for a few shapes at most
    autocast, dtype, matmul = PRECISIONS[precision]
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    generator = torch.Generator(device).manual_seed(0)

    def random(*size):
        return torch.randn(*size, device=device, generator=generator)

    head = (H,) if H > 1 else ()
    weight = triangle(random(*head, T, T, K) / (T * K) ** 0.5)
    bias = random(*head, T)
    element = torch.empty(0, dtype=dtype).element_size()
    rotation = max(2, -(-256 * 2**20 // (B * T * H * D * element))) if device == "cuda" else 2
    xs = [random(B, T, H * D).to(dtype).requires_grad_() for _ in range(rotation)]
    dy = random(B, T, H * D).to(dtype)

    def context():
        return torch.autocast(device, autocast) if autocast else contextlib.nullcontext()

    def forward(arm, x):
        with torch.no_grad(), context():
            return arm.mixer(x, *arm.layers[0])

    def step(arm, x):
        with context():
            y = arm.mixer(x, *arm.layers[0])
        return torch.autograd.grad(y, (x, *arm.layers[0]), dy, allow_unused=arm.is_floor)

    def step_chain(arm, x):
        with context():
            y = x
            for layer in arm.layers:
                y = arm.mixer(y, *layer)
        return torch.autograd.grad(y, (x, *arm.leaves), dy)

    arms = {
        name: Arm(mixer, weight, bias, CHAIN if chain else 1)
        for name, mixer in arms_of(K, H, compiled, precision, autotune).items()
    }
    mask = triangle(torch.ones_like(weight))
    expected, differences, refused = None, {}, {}
    for name, arm in list(arms.items()):
        try:
            for _ in range(3):
                got = step(arm, xs[0])
        except trigen.TrigenError as error:
            raise WrongArm(f"{name}: {error}") from error
        except RuntimeError as error:  # a peer that this PyTorch cannot run or compile here
            refused[name] = str(error).splitlines()[0][:200]
            del arms[name]
            continue
        got = [got[0].float(), (got[1] * mask).float(), got[2].float()]
        expected = expected or got
        worst = max(float((one - two).norm() / two.norm()) for one, two in zip(got, expected))
        if not worst < 2e-2:
            raise WrongArm(
                f"{name} disagrees with the first arm by {worst:.2g} (relative norm); no time is reported for wrong numbers"
            )
        differences[name] = worst

    def over(arm, call, inputs):
        for x in inputs:
            call(arm, x)

    clock = Clock(device)
    turns = -(-(repeats if device == "cuda" else 4) // rotation)
    graphs, times = {}, {name: {} for name in arms}
    for name, arm in arms.items():
        if device == "cuda":
            for kind, call in (("graph", step), ("forward_graph", forward)):
                graph, refusal = capture(lambda: over(arm, call, xs), lambda: (over(arm, call, xs[:3]), arm.hold()))
                if graph is None:
                    refused[f"{name}, {kind}"] = refusal[:200]
                else:
                    graphs[name, kind] = graph

    def eager(arm, call, count):
        over(arm, call, (xs[number % rotation] for number in range(count)))

    floors = {name: Arm(mixer, weight, bias, 1) for name, mixer in FLOORS.items()}
    times.update({name: {} for name in floors})
    for round_number in range(rounds + 1):
        for name, arm in {**arms, **floors}.items():
            measured = {"eager": clock(lambda: eager(arm, step, turns * rotation)) / (turns * rotation)}
            with torch.autograd.set_multithreading_enabled(False):
                measured["eager_inline"] = clock(lambda: eager(arm, step, turns * rotation)) / (turns * rotation)
            if chain and not arm.is_floor and (round_number == 0 or round_number % 2):
                measured["eager_chain"] = clock(lambda: eager(arm, step_chain, 4)) / (4 * CHAIN)
            for kind in ("graph", "forward_graph"):
                if (name, kind) in graphs:
                    measured[kind] = clock(graphs[name, kind].replay) / rotation
            if round_number:
                for kind, value in measured.items():
                    times[name].setdefault(kind, []).append(value)
    table = {}
    for name in arms:
        row = {kind: median(values) for kind, values in times[name].items()}
        if "graph" in row and "forward_graph" in row:
            row["gradients_graph"] = round(row["graph"] - row["forward_graph"], 2)
        table[name] = {**row, "difference": float(f"{differences[name]:.2g}")}
    ratios = {}
    for kind in table["trigen"]:
        best = min(
            (row[kind] for name, row in table.items() if not name.startswith("trigen") and kind in row), default=None
        )
        if kind != "difference" and best is not None:
            ratios[kind] = round(best / table["trigen"][kind], 3)
    report.add(
        part="step",
        shape=f"B={B} T={T} D={D}" + (f" K={K}" if K > 1 else "") + (f" H={H}" if H > 1 else ""),
        precision=precision,
        weights="float32",
        unit="us a step",
        rotation=rotation,
        arms=table,
        best_other_over_trigen=ratios,
        floors={name: {kind: median(values) for kind, values in times[name].items()} for name in floors},
        **({"refused": refused} if refused else {}),
        plans=[f"{info.problem} {info.candidate} {info.provenance} {info.match}" for info in tt.plans()],
    )
    if device == "cuda":
        tt.forget_plans()


def step_problems(shapes, precision, device):
    """The canonical texts of a step's problems, as the operators meet them."""
    autocast, dtype, matmul = PRECISIONS[precision]
    torch.set_float32_matmul_precision(matmul)
    with trigen.record() as seen:
        for B, T, D, K, H in shapes:
            x = torch.randn(B, T, H * D, device=device, dtype=dtype, requires_grad=True)
            head = (H,) if H > 1 else ()
            weight = torch.zeros(*head, T, T, K, device=device, requires_grad=True)
            bias = torch.zeros(*head, T, device=device, requires_grad=True)
            for mixer in mixers_of(precision).values():
                with torch.autocast(device, autocast) if autocast else contextlib.nullcontext():
                    y = mixer(x, weight, bias)
                torch.autograd.grad(y, (x, weight, bias), torch.ones_like(y))
    return seen
