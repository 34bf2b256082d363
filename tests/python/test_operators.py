"""The operators on the CPU: numbers against the definition, and everything torch.library promises."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import reference
import trigen
import trigen.torch as tt
from trigen.torch import ops

F = torch.ops.trigen.forward.default
FP = torch.ops.trigen.forward_pre.default
GI = torch.ops.trigen.grad_input.default
GW = torch.ops.trigen.grad_weight.default


def make(B=2, H=2, n=5, D=3, K=3, T=None, layout="btd", dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    T = T or n
    shape = (B, n, H * D) if layout == "btd" else (B, H * D, n)
    head = (H,) if H > 1 else ()
    return [
        torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
        for size in (shape, (*head, T, T, K), (*head, T), shape, shape)
    ]


CASES = [
    dict(H=1, K=1),
    dict(H=1, K=4),
    dict(H=2, K=3),
    dict(H=3, K=1),
    dict(H=2, K=8, D=3),
    dict(H=1, K=2, B=1, D=1),
    dict(H=2, K=3, n=4, T=6),
    dict(H=1, K=1, n=1, T=7),
    dict(H=1, K=5, n=7),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "layout,fill,diag",
    [("btd", "lower", 0), ("bdt", "lower", -1), ("btd", "upper", 0), ("bdt", "upper", 2), ("btd", "lower", 3)],
)
def test_numbers_follow_the_definition(case, layout, fill, diag):
    taps = case["K"]
    for pad in sorted({0, (taps - 1) // 2, taps - 1}):
        x, weight, bias, dy, _ = make(layout=layout, **case)
        options = dict(pad=pad, layout=layout, fill=fill, diag=diag)
        weight = weight.clone()
        t, s = np.indices(weight.shape[-3:-1])
        outside = torch.from_numpy(~reference.in_triangle(t, s, fill, diag))
        weight[..., outside, :] = float("nan")  # never read
        clean = torch.nan_to_num(weight)
        heads, n = case["H"], case.get("n", 5)
        np.testing.assert_allclose(
            F(x, weight, bias, **options), reference.forward(x, clean, bias, **options), atol=1e-12
        )
        np.testing.assert_allclose(GI(dy, weight, **options), reference.grad_input(dy, clean, **options), atol=1e-12)
        dw, db = GW(dy, x, list(weight.shape), torch.float64, True, **options)
        want_w, want_b = reference.grad_weight(dy, x, heads, taps, **options)
        dw4, db2 = dw.reshape(heads, *weight.shape[-3:]), db.reshape(heads, -1)
        np.testing.assert_allclose(dw4[:, :n, :n], want_w, atol=1e-12)
        np.testing.assert_allclose(db2[:, :n], want_b, atol=1e-12)
        assert (
            dw4[:, n:].count_nonzero() == 0 and dw4[:, :, n:].count_nonzero() == 0 and db2[:, n:].count_nonzero() == 0
        )
        assert dw4[:, outside].count_nonzero() == 0


def test_equal_to_masked_conv1d_with_even_taps():
    x, weight, bias, _, _ = make(H=1, n=6, D=9, K=4, dtype=torch.float32)
    mask = torch.ones(6, 6).tril().unsqueeze(-1)
    want = torch.nn.functional.conv1d(x, weight * mask, bias, padding="same")
    torch.testing.assert_close(tt.triangular_conv1d(x, weight, bias), want)


@pytest.mark.parametrize("activation", ["none", "gelu", "silu"])
@pytest.mark.parametrize("gated,added", list(itertools.product([False, True], repeat=2)))
def test_epilogues(activation, gated, added):
    x, weight, bias, gate, residual = make()
    gate, residual = gate if gated else None, residual if added else None
    q = torch.from_numpy(reference.forward(x, weight, bias, pad=1))
    y = {"none": q, "gelu": torch.nn.functional.gelu(q), "silu": torch.nn.functional.silu(q)}[activation]
    y = y * gate if gated else y
    y = y + residual if added else y
    got, pre = FP(x, weight, bias, gate, residual, 1, activation=activation)
    torch.testing.assert_close(got, y)
    torch.testing.assert_close(pre, q)
    torch.testing.assert_close(F(x, weight, bias, gate, residual, 1, activation=activation), y)
    assert got.data_ptr() != pre.data_ptr()


def test_weight_ranks_agree():
    x, weight, bias, _, _ = make(H=1, K=1)
    want = F(x, weight, bias)
    torch.testing.assert_close(F(x, weight[..., 0], bias), want)
    torch.testing.assert_close(F(x, weight.unsqueeze(0), bias.unsqueeze(0)), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision_casts_the_weight_at_load(dtype):
    x, weight, bias, dy, _ = make(dtype=torch.float32, D=16)
    x, dy = x.to(dtype), dy.to(dtype)
    got = F(x, weight, bias, pad=1)
    assert got.dtype == dtype
    torch.testing.assert_close(got, F(x.float(), weight.to(dtype).float(), bias, pad=1).to(dtype))
    dw, db = GW(dy, x, list(weight.shape), torch.float32, True, 1)
    assert dw.dtype == db.dtype == torch.float32
    torch.testing.assert_close(dw, GW(dy.float(), x.float(), list(weight.shape), torch.float32, True, 1)[0])


def operator_samples():
    x, weight, bias, gate, residual = [tensor.requires_grad_() for tensor in make(dtype=torch.float32)]
    x1, weight1, bias1, _, _ = [
        tensor.requires_grad_() for tensor in make(dtype=torch.float32, H=1, K=1, n=3, T=5, layout="bdt")
    ]
    return [
        (F, (x, weight, bias, gate, residual, 1, "btd", "lower", 0, "gelu")),
        (F, (x1, weight1, bias1, None, None, 0, "bdt", "upper", -1)),
        (F, (x.transpose(0, 1), weight[:, :2, :2], None)),
        (FP, (x, weight, bias, gate, residual, 2, "btd", "lower", 0, "silu")),
        (FP, (x, weight)),
        (GI, (x, weight, residual, 1)),
        (GI, (x1, weight1, None, 0, "bdt")),
        (GW, (gate, x, list(weight.shape), torch.float32, True, 1)),
        (GW, (x1.detach().requires_grad_(), x1, list(weight1.shape), torch.float32, False, 0, "bdt")),
    ]


@pytest.mark.parametrize("index", range(9))
def test_opcheck(index):
    operator, inputs = operator_samples()[index]
    results = torch.library.opcheck(operator, inputs)
    assert set(results.values()) == {"SUCCESS"}, results


GRAD_CASES = [
    ("none", False, dict(H=1, K=1, n=3, D=2)),
    ("gelu", True, dict(H=2, K=3, n=3, D=2)),
    ("silu", False, dict(H=1, K=2, n=3, D=3, T=4)),
    ("none", True, dict(H=1, K=1, n=2, D=2, layout="bdt")),
]


@pytest.mark.parametrize("way", ["operator", "function"])
@pytest.mark.parametrize("activation,epilogue,case", GRAD_CASES)
def test_gradcheck_and_second_derivatives(activation, epilogue, case, way):
    x, weight, bias, gate, residual = [tensor.requires_grad_() for tensor in make(B=1, **case)]
    layout, pad = case.get("layout", "btd"), (case["K"] - 1) // 2

    def call(x, weight, bias, gate, residual):
        if way == "operator":
            return FP(x, weight, bias, gate, residual, pad, layout, activation=activation)
        return tt.triangular_conv1d(
            x, weight, bias, gate=gate, residual=residual, padding=pad, layout=layout, activation=activation
        )

    inputs = (x, weight, bias, gate if epilogue else None, residual if epilogue else None)
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_forward_without_pre_computes_it_again():
    inputs = [tensor.requires_grad_() for tensor in make()]
    one = torch.autograd.grad(F(*inputs, 1, activation="gelu").sum(), inputs)
    two = torch.autograd.grad(FP(*inputs, 1, activation="gelu")[0].sum(), inputs)
    for a, b in zip(one, two):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("frozen", range(5))
def test_only_wanted_gradients(frozen):
    inputs = [tensor.requires_grad_(index != frozen) for index, tensor in enumerate(make())]
    everything = [tensor.detach().requires_grad_() for tensor in inputs]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    options = dict(padding=1, activation="silu")

    def call(x, weight, bias, gate, residual):
        return tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, **options).sum()

    all_gradients = torch.autograd.grad(call(*everything), everything)
    got = torch.autograd.grad(call(*inputs), wanted)
    for a, b in zip(got, [g for index, g in enumerate(all_gradients) if index != frozen]):
        torch.testing.assert_close(a, b)


def test_bias_alone_gets_its_gradient():
    x, weight, bias, _, _ = make(n=4, T=6)
    bias.requires_grad_()
    for layout in ("btd", "bdt"):
        y = tt.triangular_conv1d(x if layout == "btd" else x.transpose(1, 2).contiguous(), weight, bias, layout=layout)
        (got,) = torch.autograd.grad(y.sum(), bias)
        assert torch.equal(got[:, 4:], torch.zeros(2, 2, dtype=torch.float64)) and torch.equal(
            got[:, :4], torch.full((2, 4), 6.0).double()
        )


def test_masked_gradient_is_exactly_zero_and_dense_conv_leaks():
    x, weight, bias, _, _ = make(H=1, K=2, dtype=torch.float32)
    weight.requires_grad_()
    (got,) = torch.autograd.grad(tt.triangular_conv1d(x, weight, bias).square().sum(), weight)
    outside = torch.ones(5, 5).triu(1).bool()
    assert got[outside].count_nonzero() == 0
    masked = torch.nn.Parameter((weight * torch.ones(5, 5).tril().unsqueeze(-1)).detach())  # weight.data = tril(...)
    (leaky,) = torch.autograd.grad(torch.nn.functional.conv1d(x, masked, bias, padding="same").square().sum(), masked)
    assert leaky[outside].count_nonzero() > 0
    torch.testing.assert_close(got[~outside], leaky[~outside])


# ---- non-contiguous inputs -------------------------------------------------------------------------------------------------


def test_strided_inputs_give_the_same_numbers():
    x, weight, bias, _, _ = make(B=3, n=4, D=4)
    wide = torch.randn(3, 8, 24, dtype=torch.float64)
    wide[:, ::2, 8:16] = x
    views = [
        wide[:, ::2, 8:16],
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.transpose(1, 2).contiguous().transpose(1, 2),
    ]
    want = F(x, weight, bias, pad=1)
    for view in views:
        assert torch.equal(view, x)
        got = F(view, weight, bias, pad=1)
        assert got.is_contiguous()
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(
        F(x[:1].expand(3, -1, -1), weight, bias, pad=1), F(x[:1].repeat(3, 1, 1), weight, bias, pad=1)
    )


# ---- compile, checkpoint, autocast, function transforms ----------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, True])
def test_compile_fullgraph(dynamic):
    torch._dynamo.reset()
    x, weight, bias, gate, residual = [t.requires_grad_() for t in make(dtype=torch.float32)]

    def model(x, weight, bias, gate, residual):
        return tt.triangular_conv1d(torch.tanh(x), weight, bias, gate=gate, residual=residual, activation="gelu") * 2

    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=counter)
    for batch in (7, 4, 8):  # no size of another axis at first: PyTorch gives equal sizes one symbol
        inputs = [
            t.detach().repeat(batch, 1, 1)[:batch].requires_grad_() if t.dim() == 3 else t
            for t in (x, weight, bias, gate, residual)
        ]
        one, two = model(*inputs), compiled(*inputs)
        torch.testing.assert_close(one, two)
        for a, b in zip(
            torch.autograd.grad(one.square().sum(), inputs), torch.autograd.grad(two.square().sum(), inputs)
        ):
            torch.testing.assert_close(a, b)
    if dynamic:
        assert counter.frame_count == 1  # one graph serves every batch size


def test_compile_with_inductor():
    import shutil

    if shutil.which("g++") is None:
        pytest.skip("[SKIP] Inductor needs a C++ compiler on the CPU")
    torch._dynamo.reset()
    mixer = tt.TriangularConv1d(5, 3, activation="gelu")
    x = torch.randn(2, 5, 4)
    compiled = torch.compile(lambda x: mixer(torch.relu(x), residual=x) + 1, fullgraph=True)
    one, two = mixer(torch.relu(x), residual=x) + 1, compiled(x)
    torch.testing.assert_close(one, two)
    parameters = list(mixer.parameters())
    for a, b in zip(torch.autograd.grad(one.sum(), parameters), torch.autograd.grad(two.sum(), parameters)):
        torch.testing.assert_close(a, b)


def test_a_compiled_gradient_is_written_once():
    """Both operators of a backward pass read the one buffer that the derivative of what follows was written to."""
    import re
    import shutil

    from torch._inductor.utils import run_fw_bw_and_get_code

    if shutil.which("g++") is None:
        pytest.skip("[SKIP] Inductor needs a C++ compiler on the CPU")
    torch._dynamo.reset()
    x, weight = torch.randn(2, 8, 16, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    # Its caches know an operator by its name, not by its tags.
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (_, code) = run_fw_bw_and_get_code(
            torch.compile(lambda: tt.triangular_conv1d(x, weight).sin(), dynamic=False)
        )
    read = [re.search(rf"trigen\.{name}\.default\((buf\d+),", code).group(1) for name in ("grad_input", "grad_weight")]
    assert read[0] == read[1]


def test_compile_under_autocast():
    torch._dynamo.reset()
    x, weight, bias, _, _ = [t.requires_grad_() for t in make(dtype=torch.float32)]

    def model(x, weight, bias):
        with torch.autocast("cpu", torch.bfloat16):
            return tt.triangular_conv1d(x, weight, bias)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    one, two = model(x, weight, bias), compiled(x, weight, bias)
    assert one.dtype == two.dtype == torch.bfloat16
    assert torch.equal(one, two)
    a, b = (torch.autograd.grad(y.float().square().sum(), (x, weight, bias)) for y in (one, two))
    for left, right in zip(a, b):
        assert left.dtype == torch.float32 and torch.equal(left, right)


@pytest.mark.parametrize("way", ["operator", "function"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_rule(way, dtype):
    x, weight, bias, gate, residual = [t.requires_grad_() for t in make(dtype=torch.float32)]

    def call():
        if way == "operator":
            return F(x, weight, bias, gate, residual, 1)
        return tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual)

    with torch.autocast("cpu", dtype):
        y = call()
    assert y.dtype == dtype
    want = F(x.to(dtype), weight, bias, gate.to(dtype), residual.to(dtype), 1)
    assert torch.equal(y, want)
    for gradient in torch.autograd.grad(y.float().sum(), (x, weight, bias, gate, residual)):
        assert gradient.dtype == torch.float32
    with torch.autocast("cpu", dtype):  # float64 is left alone
        assert tt.triangular_conv1d(x.double(), weight.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype), torch.autocast("cpu", enabled=False):
        assert call().dtype == torch.float32


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    from torch.utils.checkpoint import checkpoint

    inputs = [t.requires_grad_() for t in make(dtype=torch.float32)]

    def block(x, weight, bias, gate, residual):
        return tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, activation="silu")

    one = torch.autograd.grad(block(*inputs).square().sum(), inputs)
    leaves = [t.detach().requires_grad_() for t in inputs]
    checkpoint(block, *leaves, use_reentrant=reentrant).square().sum().backward()
    for a, b in zip(one, leaves):
        torch.testing.assert_close(a, b.grad)


def test_functional_call_and_vmap_reach_the_operator():
    x, weight, bias, _, _ = make(dtype=torch.float32)
    want = tt.triangular_conv1d(x, weight, bias)
    got = torch.vmap(lambda one: tt.triangular_conv1d(one.unsqueeze(0), weight, bias).squeeze(0))(x)
    torch.testing.assert_close(got, want)
    meta = tt.triangular_conv1d(x.to("meta"), weight.to("meta"), bias.to("meta"))
    assert meta.is_meta and meta.shape == x.shape


def test_direct_way_and_operator_agree_bit_for_bit():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    inputs = [t.requires_grad_() for t in make(dtype=torch.float32)]
    x, weight, bias, gate, residual = inputs
    one = tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, activation="gelu")
    with Watch() as watch:
        two = tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, activation="gelu")
    assert "trigen.forward_pre.default" in watch.seen
    assert torch.equal(one, two)
    for a, b in zip(torch.autograd.grad(one.sum(), inputs), torch.autograd.grad(two.sum(), inputs)):
        assert torch.equal(a, b)


def test_non_floating_inference_and_default_device():
    x, weight, bias, _, _ = make(dtype=torch.float32)
    with torch.inference_mode():
        assert torch.equal(tt.triangular_conv1d(x, weight, bias), F(x, weight, bias, pad=1))
    assert ops.bias_gradient(x, bias.shape, bias.dtype, "btd").shape == bias.shape


# ---- export, profiler, operation counts ------------------------------------------------------------------------------------------


def test_export_with_a_dynamic_batch():
    mixer = torch.nn.Sequential(tt.TriangularConv1d(8, 3, activation="gelu"), tt.TriangularConv1d(8, heads=2))
    x = torch.randn(3, 8, 6)
    program = torch.export.export(mixer, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"trigen.forward.default"} <= names or {"trigen.forward_pre.default"} <= names
    more = torch.randn(5, 8, 6)
    torch.testing.assert_close(program.module()(more), mixer(more))


def test_operation_counts_are_the_triangles():
    from torch.utils.flop_counter import FlopCounterMode

    mixer = tt.TriangularConv1d(8, 3, heads=2)
    x = torch.randn(4, 8, 6, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        mixer(x).sum().backward()
    one = 2 * 4 * 6 * 3 * (8 * 9 // 2)  # two operations x batch x features x taps x entries
    assert counter.get_total_flops() == 3 * one
    from trigen.torch.ops import triangle_entries

    for fill in ("lower", "upper"):
        for diag in (-9, -2, 0, 3, 9):
            n = 5
            t, s = np.indices((n, n))
            assert triangle_entries(n, fill, diag) == reference.in_triangle(t, s, fill, diag).sum()


# ---- one derivative ----------------------------------------------------------------------------------------------------------------


def test_the_operator_and_the_function_run_the_same_problems():
    import trigen

    inputs = [tensor.requires_grad_() for tensor in make(dtype=torch.float32)]
    x, weight, bias, gate, residual = inputs
    seen = []
    for call in (
        lambda: FP(x, weight, bias, gate, residual, 1, activation="gelu")[0],
        lambda: tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, activation="gelu"),
    ):
        with trigen.record() as recorder:
            torch.autograd.grad(call().sum(), inputs)
        seen.append(recorder.counts)
    assert seen[0] == seen[1] and len(seen[0]) == 4 and any(text.startswith("grad_epilogue") for text in seen[0])


@pytest.mark.parametrize("way", ["operator", "function"])
def test_gradients_for_a_batch_of_seeds(way):
    x, weight, bias, _, _ = make()
    weight.requires_grad_()
    y = (
        F(x, weight, bias, pad=1, activation="silu")
        if way == "operator"
        else tt.triangular_conv1d(x, weight, bias, activation="silu")
    )
    seeds = torch.randn(3, *y.shape, dtype=y.dtype)
    (together,) = torch.autograd.grad(y, weight, seeds, is_grads_batched=True, retain_graph=True)
    for seed, one in zip(seeds, together):
        torch.testing.assert_close(torch.autograd.grad(y, weight, seed, retain_graph=True)[0], one)


@pytest.mark.parametrize("layout", ["btd", "bdt"])
@pytest.mark.parametrize("extras", [(), ("gate", "residual")], ids=str)
@pytest.mark.parametrize("what", ["conv", "scan"])
def test_what_lies_transposed_is_read_as_it_lies(what, extras, layout):
    """x.mT goes to the other layout: no copy, the same numbers and gradients, and y lies as x does."""
    torch.manual_seed(5)
    n, features = 7, 6
    shape = (2, features, n) if layout == "btd" else (2, n, features)
    x = torch.randn(shape).mT.requires_grad_()
    more = {name: torch.randn(shape).mT for name in extras}
    weight = torch.randn(n, n) if what == "conv" else torch.randn(n)
    run = tt.triangular_conv1d if what == "conv" else tt.scan
    with trigen.record() as seen:
        y = run(x, weight, activation="silu", layout=layout, **more)
    assert y.shape == x.shape and y.mT.is_contiguous()
    assert ["layout=bdt" in text for text in seen.problems] == [layout == "btd"]
    copies = {name: tensor.contiguous() for name, tensor in more.items()}
    want = run(x.contiguous(), weight, activation="silu", layout=layout, **copies)
    torch.testing.assert_close(y, want)
    dy = torch.randn_like(want)
    torch.testing.assert_close(*(torch.autograd.grad(one, x, dy)[0] for one in (y, want)))
    with pytest.raises(ValueError, match=rf"\[2, {x.shape[1]}, {x.shape[2]}\]|weight|source"):
        run(x, weight[..., :-1].T[..., :-1] if what == "conv" else weight[:-1], layout=layout)
