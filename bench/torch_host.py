"""Part `host` of torch_ops.py: where the host time of a training step goes, eager, operator by operator and compiled. Few enough calls at a time that
the GPU never makes the host wait."""

import torch
import torch.nn.functional as F
import trigen.torch as tt
from timing import host_us, in_turn, median, operator_of_nothing
from torch_step import Floor
from trigen import library
from trigen.torch import cuda, launch

NOTHING = operator_of_nothing("CUDA")


def host_arms(batch, tokens, features):
    """{name: (call, whether it has a backward pass)}."""
    device, short = "cuda", torch.bfloat16
    x, dy = (torch.randn(batch, tokens, features, device=device, dtype=short) for _ in range(2))
    weight, bias = torch.randn(tokens, tokens, 1, device=device), torch.randn(tokens, device=device)
    narrow, narrow_bias = weight.to(short), bias.to(short)
    leaves = xg, wg, bg = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    narrow_leaves = [tensor.clone().requires_grad_() for tensor in (x, narrow, narrow_bias)]
    square = wg.detach().squeeze(-1).to(short).requires_grad_()
    square_too = square.detach().clone().requires_grad_()
    mixer = tt.triangular_conv1d
    vectors = [torch.rand(1, tokens, device=device, requires_grad=True) for _ in range(5)]
    repeat = tt.StructuredMixer(tokens, decay="shared", device=device)
    seed = torch.zeros(1, 1, device=device)
    seed_in = torch.zeros(1, 1, device=device, requires_grad=True)
    seed_out = seed_in.view(1, 1)
    options = (0, "btd", "lower", 0, "none", "default", "dense")

    w, row = torch.rand(4, 1, tokens, device=device), torch.rand(1, tokens, device=device)
    compiled, compiled_repeat = torch.compile(mixer, dynamic=False), torch.compile(repeat, dynamic=False)

    def unrecorded(call, *given):
        return torch.no_grad()(lambda: call(*given)), False

    def operator(name, *given):
        """As a compiled model calls it."""
        return unrecorded(getattr(torch.ops.trigen, name).default, *given)

    def autocast():
        with torch.autocast(device, short):
            pass

    def under_autocast(call):
        def run():
            with torch.autocast(device, short):
                return call()

        return run

    def step(call, given):
        def run():
            with torch.autocast(device, short):
                y = call(*given)
            return torch.autograd.grad(y, given, dy)

        return run

    def bare():
        """The bare C call of forward, on memory that is there already."""
        status = launch._run(plan.handle, packed, stream)
        assert status == 0

    with torch.no_grad():
        mixer(x, narrow, narrow_bias)
    plan = next(
        one
        for one in launch.launches.values()
        if one.text.startswith(f"forward,dtype=bf16,B={batch},H=1,T={tokens},D={features},")
    )
    y = torch.empty_like(x)
    scratch = torch.empty(max(1, plan.workspace), dtype=torch.uint8, device=device)
    # Strides of zero: contiguous.
    packed = library.ARGS.pack(
        library.ARGS.size,
        x.data_ptr(),
        0,
        0,
        0,
        y.data_ptr(),
        *[0] * 15,
        narrow.data_ptr(),
        0,
        0,
        narrow_bias.data_ptr(),
        scratch.data_ptr() if plan.workspace else 0,
        plan.workspace,
        *[0] * 14,
        1.0,
        1.0,
        0.0,
        0.0,
        0.0,
    )
    stream = torch.cuda.current_stream().cuda_stream
    return {
        "torch.empty_like": (lambda: torch.empty_like(x), False),
        "weight.to(bfloat16)": (lambda: weight.to(short), False),
        "x.copy_ (one kernel of PyTorch's)": (lambda: y.copy_(dy), False),
        "trigen_plan_run": (bare, False),
        "autocast": (autocast, False),
        "forward, no gradients, 16-bit weights": (torch.no_grad()(lambda: mixer(x, narrow, narrow_bias)), False),
        "forward, no gradients, f32 weights": (torch.no_grad()(lambda: mixer(x, weight, bias)), False),
        "forward under autocast": (under_autocast(lambda: mixer(xg, wg, bg)), False),
        "forward, gradients recorded, 16-bit weights": (lambda: mixer(*narrow_leaves), False),
        "forward, a function that launches nothing": (lambda: Floor.apply(*leaves), False),
        "torch.mm, gradients recorded": (lambda: torch.mm(square, square_too), False),
        "both gradients, 16-bit weights": (
            torch.no_grad()(lambda: cuda.gradients(dy, x, narrow, narrow_bias, options)),
            False,
        ),
        "both gradients, f32 weights": (torch.no_grad()(lambda: cuda.gradients(dy, x, weight, bias, options)), False),
        "operator of three tensors, a function that launches nothing": unrecorded(NOTHING, x, w, row),
        "operator scan": operator("scan", x, w, row),
        "operator scan, gelu and gate": operator("scan", x, w, row, dy, None, "btd", "gelu", True),
        "operator scan_grad_input": operator("scan_grad_input", dy, w),
        "operator scan_grad_weight": operator("scan_grad_weight", dy, x, w, True),
        "operator scan_backward": operator("scan_backward", dy, x, w, True),
        "operator forward": operator("forward", x, weight, bias),
        "operator grad_input": operator("grad_input", dy, weight),
        "operator grad_weight": operator("grad_weight", dy, x, list(weight.shape), weight.dtype, True),
        "autograd.grad of a view": (lambda: torch.autograd.grad(seed_out, (seed_in,), seed, retain_graph=True), True),
        "step, a function that launches nothing": (step(Floor.apply, leaves), True),
        "step, torch.matmul, 16-bit weight": (step(lambda x, w: torch.matmul(w, x), (xg, square)), True),
        "step, conv1d": (step(lambda x, w, b: F.conv1d(x, w, b), leaves), True),
        "step, trigen, 16-bit weights": (step(mixer, narrow_leaves), True),
        "step, trigen": (step(mixer, leaves), True),
        "step, scan with all vectors": (step(tt.scan, [xg, *vectors]), True),
        "step, StructuredMixer": (step(lambda x, *_: repeat(x), [xg, *repeat.parameters()]), True),
        "step, trigen, compiled": (step(compiled, leaves), True),
        "step, StructuredMixer, compiled": (step(lambda x, *_: compiled_repeat(x), [xg, *repeat.parameters()]), True),
    }


def bench_host(report, batch=1, tokens=128, features=64, rounds=15, calls=100):
    """One line: microseconds of the host for each arm; of those with a backward pass also with autograd on the calling thread."""
    arms = host_arms(batch, tokens, features)

    def sample(call, inline):
        torch.cuda.synchronize()
        with torch.autograd.set_multithreading_enabled(not inline):
            return host_us(call, calls)

    samples = in_turn(
        {
            (name, inline): lambda call=call, inline=inline: sample(call, inline)
            for name, (call, backward) in arms.items()
            for inline in (False, True)[: 1 + backward]
        },
        rounds,
        warm=2,
    )
    torch.cuda.synchronize()
    report.add(
        part="host",
        shape=f"B={batch} T={tokens} D={features} bf16",
        host_us={name: median(values) for (name, inline), values in samples.items() if not inline},
        inline_us={name: median(values) for (name, inline), values in samples.items() if inline},
    )
