"""The operators on a GPU: numbers, streams, graphs, no synchronisation, devices. [SKIP] without one."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("[SKIP] torch sees no CUDA device", allow_module_level=True)

import trigen
import trigen.torch as tt
from trigen.torch import launch

warnings.simplefilter("ignore", trigen.TrigenWarning)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def make(B=4, H=1, n=128, D=64, K=1, T=None, layout="btd", dtype=torch.bfloat16, wdtype=None, form="dense", width=0):
    T = T or n
    shape = (B, n, H * D) if layout == "btd" else (B, H * D, n)
    head = (H,) if H > 1 else ()
    x, gate, residual = (torch.randn(shape, device="cuda").to(dtype) for _ in range(3))
    own = {"dense": (T, T, K), "toeplitz": (T,), "band": (T, width)}[form]
    weight = (torch.randn(*head, *own, device="cuda") / ((width or n) * K) ** 0.5).to(wdtype or dtype)
    if form == "dense":
        weight[..., torch.ones(T, T, device="cuda").triu(1).bool(), :] = float("nan")
    elif form == "band":
        weight[..., before_the_first_token(T, width)] = float("nan")
    bias = torch.randn(*head, T, device="cuda").to(wdtype or dtype)
    return [tensor.requires_grad_() for tensor in (x, weight, bias, gate, residual)]


def before_the_first_token(T, width):
    return torch.arange(T, device="cuda")[:, None] + torch.arange(width, device="cuda") < width - 1


def in_double(tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


CASES = [
    dict(),
    dict(dtype=torch.float16, n=257, D=65),
    dict(dtype=torch.float32, n=130),
    dict(wdtype=torch.float32, K=4),
    dict(H=4, D=32, K=3),
    dict(layout="bdt", n=129, D=40),
    dict(layout="bdt", H=2, K=2),
    dict(n=96, T=160),
    dict(n=96, T=160, H=2),
    dict(B=1, n=1, D=1),
    dict(form="toeplitz", n=512),
    dict(form="toeplitz", n=257, D=65, dtype=torch.float16),
    dict(form="toeplitz", n=130, dtype=torch.float32),
    dict(form="toeplitz", n=200, T=320, H=4, D=40, wdtype=torch.float32),
    dict(form="toeplitz", n=160, D=40, H=2, layout="bdt"),
    dict(form="band", n=512, width=64),
    dict(form="band", n=257, D=65, width=100, dtype=torch.float16),
    dict(form="band", n=130, width=17, dtype=torch.float32),
    dict(form="band", n=200, T=320, H=4, D=40, width=96, wdtype=torch.float32),
    dict(form="band", n=160, D=40, H=2, width=160, layout="bdt"),
]


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_against_double(case, epilogue):
    """Forward and gradients against the plain path in float64; the masked triangle holds NaN."""
    tensors = make(**case)
    doubles = in_double(tensors)
    layout, form = case.get("layout", "btd"), case.get("form", "dense")

    def call(x, weight, bias, gate, residual):
        extra = dict(gate=gate, residual=residual, activation="gelu") if epilogue else {}
        return tt.triangular_conv1d(x, weight, bias, layout=layout, form=form, **extra)

    used = 5 if epilogue else 3
    y, want = call(*tensors), call(*doubles)
    dy = torch.randn_like(y)
    got = [y, *torch.autograd.grad(y, tensors[:used], dy)]
    expected = [want, *torch.autograd.grad(want, doubles[:used], dy.double())]
    for one, two in zip(got, expected):
        error = float((one.double() - two).norm() / two.norm().clamp_min(1e-30))
        assert error < TOLERANCE[y.dtype], error
    if form == "dense":
        T = tensors[1].shape[-2]
        outside = torch.ones(T, T, device="cuda").triu(1).bool()
        assert got[2].reshape(-1, T, T, case.get("K", 1))[:, outside].count_nonzero() == 0
    elif form == "band":
        assert got[2][..., before_the_first_token(*tensors[1].shape[-2:])].count_nonzero() == 0
    again = torch.autograd.grad(call(*tensors), tensors[:used], dy)
    assert all(torch.equal(one, two) for one, two in zip(again, got[1:]))  # the same bits


MODULES = {
    "linear": (lambda: tt.TriangularLinear(96, activation="silu"), (2, 3, 40, 96)),
    "linear, prefix": (lambda: tt.TriangularLinear(96), (4, 40, 72)),
    "gating unit": (lambda: tt.CausalSpatialGatingUnit(128, 96, heads=2, init_eps=3.0), (4, 96, 128)),
    "gating unit, gelu, prefix": (
        lambda: tt.CausalSpatialGatingUnit(128, 96, activation="gelu", init_eps=3.0),
        (4, 72, 128),
    ),
    "heads and taps": (lambda: tt.TriangularConv1d(96, 4, heads=2, activation="gelu"), (4, 96, 128)),
    "no batch": (lambda: tt.TriangularConv1d(96), (96, 64)),
}

FORMS = {
    "toeplitz": (lambda: tt.TriangularConv1d(96, form="toeplitz", activation="silu"), (4, 96, 64)),
    "toeplitz, heads in the batch, prefix": (
        lambda: tt.TriangularConv1d(96, form="toeplitz", heads=2, layout="bdt", heads_in_batch=True),
        (8, 40, 72),
    ),
    "band": (lambda: tt.TriangularConv1d(96, form="band", width=24, heads=2, activation="gelu"), (4, 96, 64)),
    "band, fewer tokens than it has": (lambda: tt.TriangularConv1d(96, form="band", width=80), (4, 40, 64)),
}

STRUCTURED = {
    "column repeat": (lambda: tt.StructuredMixer(96, decay="shared"), (4, 96, 64)),
    "both repeats, heads, prefix": (
        lambda: tt.StructuredMixer(96, "both", heads=2, decay="each", diagonal="constant", layout="bdt"),
        (4, 64, 72),
    ),
    "mixed heads": (
        lambda: tt.StructuredMixer(96, ("row", "column"), heads=2, decay="each", decay_constant=2, diagonal="vector"),
        (4, 96, 64),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*MODULES, *FORMS, *STRUCTURED])
def test_modules_against_double(name, dtype):
    """In float32, and under autocast; three times, so that the later calls are known ones."""
    make_module, shape = {**MODULES, **FORMS, **STRUCTURED}[name]
    torch.manual_seed(4)
    module = make_module()
    if name in STRUCTURED:
        torch.nn.init.uniform_(module.decay_value, 0.9, 1)
    twin, x = copy.deepcopy(module).double(), torch.randn(shape)
    want = twin(x.double())
    dy = torch.randn(want.shape, dtype=torch.float64)
    want = [want, *torch.autograd.grad(want, list(twin.parameters()), dy)]
    module.cuda()
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.bfloat16):
            y = module(x.cuda())
        got = [y, *torch.autograd.grad(y, list(module.parameters()), dy.cuda().to(y.dtype))]
        for one, two in zip(got, want):
            error = float((one.cpu().double() - two).norm() / two.norm().clamp_min(1e-30))
            assert error < TOLERANCE[dtype] * (10 if name in STRUCTURED else 1), error  # sums with either sign


def test_float32_follows_pytorchs_switches():
    x, weight, bias = make(dtype=torch.float32, n=256, D=128)[:3]
    exact = tt.triangular_conv1d(x.double(), weight.double(), bias.double())
    before = torch.get_float32_matmul_precision()
    try:
        for precision, least, most in (("highest", 0, 1e-6), ("high", 1e-5, 2e-3), ("highest", 0, 1e-6)):
            torch.set_float32_matmul_precision(precision)
            for _ in range(3):
                error = float((tt.triangular_conv1d(x, weight, bias) - exact).norm() / exact.norm())
                assert least <= error < most, (precision, error)
    finally:
        torch.set_float32_matmul_precision(before)


def test_same_bits_every_run():
    tensors = make(B=8, n=512, D=128, wdtype=torch.float32)
    runs = []
    for _ in range(3):
        y = tt.triangular_conv1d(*tensors[:3])
        runs.append([y, *torch.autograd.grad(y.float().square().sum(), tensors[:3])])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run[:2], runs[0][:2]))
        assert torch.equal(run[3], runs[0][3]) and torch.equal(run[2], runs[0][2])


def test_nothing_synchronises():
    tensors = make()
    structured = [make_module().cuda() for make_module, _ in STRUCTURED.values()]
    inputs = [torch.randn(shape, device="cuda") for _, shape in STRUCTURED.values()]

    def steps():
        tt.triangular_conv1d(*tensors[:3], gate=None).sum().backward()
        for module, x in zip(structured, inputs):
            module(x).sum().backward()

    steps()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            steps()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_current_stream():
    """A long kernel in front on a side stream: the operator must wait for it, and nothing else orders them."""
    x, weight, bias, _, _ = [t.detach() for t in make(n=256, D=256)]
    want = tt.triangular_conv1d(x, weight, bias)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        late = torch.empty_like(x).fill_(float("nan"))
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        got = tt.triangular_conv1d(late, weight, bias)
    stream.synchronize()
    assert torch.equal(got, want)


@pytest.mark.skipif(torch.cuda.get_device_capability() < (8, 0), reason="[SKIP] newton_schulz needs an Ampere")
def test_lists_of_matrices_that_lie_anywhere():
    """Calls behind one another on a side stream, whose arrays of pointers are under way at once; no synchronisation; a graph of the same."""
    lists = [[torch.randn(64, 96, device="cuda") for _ in range(10)][::2] for _ in range(8)]
    wanted = [tt.orthogonalize(torch.stack(given)) for given in lists]
    tt.orthogonalize(lists[0])
    late = [[torch.full_like(one, float("nan")) for one in given] for given in lists]
    stream, before = torch.cuda.Stream(), torch.cuda.get_sync_debug_mode()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            torch._foreach_copy_(sum(late, []), sum(lists, []))
            got = [tt.orthogonalize(given) for given in late]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    stream.synchronize()
    for results, want in zip(got, wanted):
        assert torch.equal(torch.stack(results), want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = tt.orthogonalize(late[0])
    torch._foreach_copy_(late[0], lists[1])
    for _ in range(2):
        graph.replay()
        assert torch.equal(torch.stack(captured), wanted[1])


@pytest.mark.parametrize("name", ["taps", *FORMS, *STRUCTURED])
def test_graph_of_a_training_step(name):
    taps = lambda: tt.TriangularConv1d(128, 3, activation="silu"), (4, 128, 64)  # noqa: E731
    make_module, shape = {**FORMS, **STRUCTURED}.get(name, taps)
    mixer = make_module().cuda()
    twin = copy.deepcopy(mixer)
    x = torch.randn(shape, device="cuda")

    def step(module, x):
        with torch.autocast("cuda", torch.bfloat16):
            y = module(x)
        return torch.autograd.grad(y.float().square().mean(), list(module.parameters()))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(mixer, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(mixer, x)
    for _ in range(2):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for one, two in zip(captured, step(twin, x)):
            assert torch.equal(one, two)


def test_a_new_shape_inside_a_capture_is_refused_and_the_capture_survives():
    x, weight, bias, _, _ = [t.detach() for t in make(n=40, D=24)]
    other = torch.randn(3, 40, 24, device="cuda", dtype=x.dtype)
    want = tt.triangular_conv1d(x, weight, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="capturing a graph and this combination of shapes has no plan yet"):
            tt.triangular_conv1d(other, weight, bias)
        got = tt.triangular_conv1d(x, weight, bias)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, want)


@pytest.mark.parametrize("options", [{}, dict(form="toeplitz"), dict(form="band", width=32)], ids=str)
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(dynamic, options):
    torch._dynamo.reset()
    mixer = tt.TriangularConv1d(128, activation="gelu", device="cuda", **options)
    compiled = torch.compile(lambda x: mixer(torch.tanh(x)) * 2, fullgraph=True, dynamic=dynamic)
    for batch in (7, 4):
        x = torch.randn(batch, 128, 64, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            one, two = mixer(torch.tanh(x)) * 2, compiled(x)
        torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2)
        a, b = (torch.autograd.grad(y.float().sum(), [x, *mixer.parameters()]) for y in (one, two))
        for left, right in zip(a, b):
            torch.testing.assert_close(left, right, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("operator", ["forward", "forward_pre", "grad_input", "grad_weight"])
def test_opcheck(operator):
    x, weight, bias, gate, residual = make(B=2, n=16, D=8, K=3, dtype=torch.float32)
    weight = torch.nan_to_num(weight.detach()).requires_grad_()
    inputs = {
        "forward": (x, weight, bias, None, None, 1),
        "forward_pre": (x, weight, bias, gate, residual, 1, "btd", "lower", 0, "gelu"),
        "grad_input": (x, weight, None, 1),
        "grad_weight": (gate, x, list(weight.shape), torch.float32, True, 1),
    }[operator]
    results = torch.library.opcheck(getattr(torch.ops.trigen, operator).default, inputs, rtol=1e-3, atol=1e-3)
    assert set(results.values()) == {"SUCCESS"}, results


def test_strides():
    x, weight, bias, _, _ = [t.detach() for t in make()]
    want = tt.triangular_conv1d(x, weight, bias)
    wide = torch.randn(4, 256, 192, device="cuda", dtype=x.dtype)
    wide[:, ::2, 64:128] = x
    odd = torch.empty(4, 128, 65, device="cuda", dtype=x.dtype)[..., 1:].copy_(x)
    for view in (
        wide[:, ::2, 64:128],
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.transpose(1, 2).contiguous().transpose(1, 2),
        odd,
    ):
        torch.testing.assert_close(tt.triangular_conv1d(view, weight, bias), want, rtol=2e-2, atol=2e-2)
    for base in (weight.t() if weight.dim() == 2 else weight.transpose(0, 1),):
        clean = torch.nan_to_num(base)
        torch.testing.assert_close(
            tt.triangular_conv1d(x, clean.contiguous(), bias),
            tt.triangular_conv1d(x, clean, bias),
            rtol=2e-2,
            atol=2e-2,
        )


def test_mixed_devices_are_refused_by_name():
    x, weight, bias, _, _ = [t.detach() for t in make()]
    tt.triangular_conv1d(x, weight, bias)  # known: the next one must not take its plan
    with pytest.raises(ValueError, match="weight .* is on cpu while x is on cuda:0; allowed: one device"):
        tt.triangular_conv1d(x, weight.cpu(), bias)
    with pytest.raises(ValueError, match="weight .* is on cuda:0 while x is on cpu"):
        tt.triangular_conv1d(x.cpu(), weight, bias)
    with pytest.raises(ValueError, match="bias .* is on cpu"):
        tt.triangular_conv1d(x, weight, bias.cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="[SKIP] one device")
def test_second_device_while_the_first_is_current():
    x, weight, bias, _, _ = [t.detach() for t in make()]
    want = tt.triangular_conv1d(x, weight, bias)
    with torch.cuda.device(0):
        got = tt.triangular_conv1d(*(t.to("cuda:1") for t in (x, weight, bias)))
        assert torch.cuda.current_device() == 0
    assert torch.equal(got.cpu(), want.cpu())


@pytest.mark.parametrize("options", [{}, dict(form="toeplitz"), dict(form="band", width=32)], ids=str)
def test_frozen(options):
    mixer = tt.TriangularConv1d(128, device="cuda", dtype=torch.bfloat16, **options)
    x = torch.randn(4, 128, 64, device="cuda", dtype=torch.bfloat16)
    frozen = tt.freeze(mixer, x)
    with torch.no_grad():
        assert torch.equal(frozen(x), mixer(x))
        mixer.weight.mul_(2)
        assert torch.equal(frozen(x), mixer(x))
        tt.forget_plans()  # after tuning, say
        assert torch.equal(frozen(x), mixer(x))
    with pytest.raises(ValueError, match="requires grad; a frozen plan has no derivative"):
        frozen(x.clone().requires_grad_())
    odd = torch.empty(4 * 128 * 64 + 1, device="cuda", dtype=x.dtype)[1:].view_as(x).copy_(x)
    with torch.no_grad():
        torch.testing.assert_close(frozen(odd), frozen(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("tokens, K", [(128, 3), (301, 1), (128, 1)])
def test_frozen_with_constant_weights(tokens, K):
    mixer = tt.TriangularConv1d(tokens, K, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(4, tokens, 64, device="cuda", dtype=torch.bfloat16)
    frozen = tt.freeze(mixer, x, constant_weights=True)
    with torch.no_grad():
        assert torch.equal(frozen(x), mixer(x))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = frozen(x)
        for factor in (1, 2):
            mixer.weight.mul_(factor)
            wanted = mixer(x)
            assert torch.equal(frozen(x), wanted), "a change that PyTorch counts is found"
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(captured, wanted), "and what the graph reads was made again"


def test_backward_takes_the_weight_that_forward_prepared():
    from trigen.torch import known

    mixer = tt.TriangularConv1d(1001, device="cuda")  # float32 beside bfloat16, and rows that TMA does not take
    x = torch.randn(4, 1001, 256, device="cuda", requires_grad=True)
    steps = []
    for _ in range(3):
        mixer.zero_grad()
        x.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            y = mixer(x)
        y.backward(torch.ones_like(y))
        steps.append((y.detach(), x.grad, mixer.weight.grad, mixer.bias.grad))
    for step in steps[1:]:
        for one, first in zip(step, steps[0]):
            assert torch.equal(one, first)
    kept = [call.keeps for calls in known._calls.values() for call in calls]
    assert torch.cuda.get_device_capability()[0] != 9 or any(keeps is not None for keeps in kept)


@pytest.mark.parametrize("options", [dict(kernel_size=3), dict(form="toeplitz"), dict(form="band", width=9)], ids=str)
def test_decoding(options):
    mixer = tt.TriangularConv1d(64, heads=2, device="cuda", **options)
    x = torch.randn(2, 64, 32, device="cuda")
    want = mixer(x)
    cache = mixer.new_cache(2, 32)
    got = torch.cat(
        [mixer.decode(x[:, :40], cache)] + [mixer.decode(x[:, t : t + 1], cache) for t in range(40, 64)], dim=1
    )
    torch.testing.assert_close(got, want.detach(), rtol=1e-3, atol=1e-3)


def test_plans_say_what_runs():
    tt.triangular_conv1d(*[t.detach() for t in make()[:3]])
    info = tt.plans()[0]
    assert info.candidate and info.device == torch.cuda.get_device_name()
    before = len(launch.launches)
    assert before > 0
    tt.forget_plans()
    assert not launch.launches
    tt.triangular_conv1d(*[t.detach() for t in make()[:3]])
