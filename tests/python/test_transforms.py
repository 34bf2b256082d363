"""torch.func and forward mode through the functional form and the modules: against the same formula in PyTorch's own operations."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

CASES = {
    "product": dict(),
    "taps": dict(taps=3),
    "heads": dict(heads=2, taps=2),
    "prefix": dict(n=3),
    "bdt": dict(layout="bdt", fill="upper", diagonal=1),
    "epilogue": dict(activation="gelu", gate=True, residual=True),
    "silu": dict(activation="silu", taps=2),
}


def setup(n=4, T=4, D=3, taps=1, heads=1, layout="btd", gate=False, residual=False, **options):
    generator = torch.Generator().manual_seed(0)
    shape = (2, n, heads * D) if layout == "btd" else (2, heads * D, n)
    sizes = [shape, (heads, T, T, taps), (heads, T)] + [shape] * (gate + residual)
    tensors = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    names = ["gate"] * gate + ["residual"] * residual

    def ours(x, weight, bias, *rest):
        return tt.triangular_conv1d(x, weight, bias, layout=layout, **dict(zip(names, rest)), **options)

    def theirs(x, weight, bias, *rest):
        fill, diagonal, activation = (options.get(name) for name in ("fill", "diagonal", "activation"))
        mask = torch.ones(T, T, dtype=torch.float64)
        mask = mask.triu(diagonal or 0) if fill == "upper" else mask.tril(diagonal or 0)
        x = x if layout == "btd" else x.transpose(1, 2)
        masked = (weight * mask[..., None])[:, :n, :n]
        parts = [
            torch.nn.functional.conv1d(
                torch.nn.functional.pad(part, ((taps - 1) // 2, taps - 1 - (taps - 1) // 2)), w, b[:n]
            )
            for part, w, b in zip(x.chunk(heads, 2), masked, bias)
        ]
        y = torch.cat(parts, 2)
        y = y if layout == "btd" else y.transpose(1, 2)
        y = {None: lambda v: v, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}[activation](y)
        given = dict(zip(names, rest))
        return y * given.get("gate", 1) + given.get("residual", 0)

    return ours, theirs, tensors


@pytest.mark.parametrize("case", CASES)
def test_every_transform_has_the_numbers_of_plain_pytorch(case):
    ours, theirs, tensors = setup(**CASES[case])
    tangents = tuple(torch.randn_like(tensor) for tensor in tensors)
    every = tuple(range(len(tensors)))
    for transform in (
        lambda f: jvp(f, tuple(tensors), tangents),
        lambda f: jacfwd(f, every)(*tensors),
        lambda f: jacrev(f, every)(*tensors),
        lambda f: grad(lambda *given: f(*given).square().sum(), every)(*tensors),
        lambda f: jvp(grad(lambda *given: f(*given).pow(3).sum(), every), tuple(tensors), tangents),
        lambda f: vmap(lambda x: jvp(lambda x: f(x, *tensors[1:]), (x,), (tangents[0],))[1])(
            torch.stack([tensors[0]] * 2)
        ),
    ):
        torch.testing.assert_close(transform(ours), transform(theirs))
    assert jvp(ours, tuple(tensors), tangents)[1].abs().max() > 0


def test_forward_over_reverse_and_back():
    ours, theirs, tensors = setup(n=3, T=3, D=2)
    results = [
        hessian(lambda weight, f=f: f(tensors[0], weight, tensors[2]).pow(3).sum())(tensors[1]) for f in (ours, theirs)
    ]
    torch.testing.assert_close(*results)
    results = [jacrev(jacfwd(lambda x, f=f: f(x, *tensors[1:]).pow(2).sum()))(tensors[0]) for f in (ours, theirs)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("case", CASES)
def test_vmap_makes_batch_of_an_axis_of_x_and_no_warning(case):
    ours, theirs, tensors = setup(**CASES[case])
    more = [torch.stack([tensor, 2 * tensor, tensor - 1], 1) for tensor in tensors]

    def gradients(f):
        return lambda *given: grad(lambda *given: f(*given).pow(2).sum(), tuple(range(len(given))))(*given)

    of_x = (1, None, None) + (1,) * (len(tensors) - 3)
    given = [one if axis is None else stacked for one, stacked, axis in zip(tensors, more, of_x)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(vmap(ours, of_x)(*given), vmap(theirs, of_x)(*given))
        torch.testing.assert_close(vmap(ours, 1)(*more), vmap(theirs, 1)(*more))
        torch.testing.assert_close(
            vmap(ours, (0, None, None) + (None,) * (len(tensors) - 3))(tensors[0][None], *tensors[1:]),
            theirs(*tensors)[None],
        )
        for axes, arrays in ((of_x, given), ((1,) * len(more), more)):
            torch.testing.assert_close(vmap(gradients(ours), axes)(*arrays), vmap(gradients(theirs), axes)(*arrays))
        parameter = tensors[1].clone().requires_grad_()
        both = []
        for f in (ours, theirs):
            both.append(torch.autograd.grad(vmap(f, of_x)(given[0], parameter, *given[2:]).sin().sum(), parameter)[0])
        torch.testing.assert_close(*both)


def test_vmap_of_x_is_one_kernel():
    x, weight = torch.randn(3, 2, 4, 8), torch.randn(4, 4)
    with trigen.record() as seen:
        vmap(lambda x: tt.triangular_conv1d(x, weight))(x)
    assert seen.counts == {"forward,dtype=f32,B=6,H=1,T=4,D=8,K=1,pad=0": 1}


def test_dual_tensors():
    ours, theirs, tensors = setup(taps=2)
    tangent = torch.randn_like(tensors[0])
    found = []
    for function in (ours, theirs):
        with forward_ad.dual_level():
            for weight in (tensors[1], tensors[1].clone().requires_grad_()):
                y = function(forward_ad.make_dual(tensors[0], tangent), weight, tensors[2])
                found.append(forward_ad.unpack_dual(y).tangent.detach())
    assert (
        all(torch.equal(one, found[0]) or torch.allclose(one, found[0]) for one in found) and found[0].abs().max() > 0
    )


def test_per_sample_gradients_of_a_module():
    mixer, x = tt.TriangularConv1d(4, 2, dtype=torch.float64), torch.randn(5, 4, 3, dtype=torch.float64)
    parameters = dict(mixer.named_parameters())

    def loss(parameters, sample):
        return functional_call(mixer, parameters, (sample[None],)).square().sum()

    each = vmap(grad(loss), (None, 0))(parameters, x)
    for index in range(5):
        (mixer(x[index : index + 1]).square().sum()).backward()
        torch.testing.assert_close(each["weight"][index], mixer.weight.grad)
        torch.testing.assert_close(each["bias"][index], mixer.bias.grad)
        mixer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_short_types(dtype):
    mixer, x = tt.TriangularConv1d(6, activation="gelu"), torch.randn(2, 6, 4)
    with torch.autocast("cpu", dtype):
        y, tangent = jvp(mixer, (x,), (x,))
    assert y.dtype == tangent.dtype == dtype
    want = jvp(mixer, (x,), (x,))
    torch.testing.assert_close((y.float(), tangent.float()), want, rtol=3e-2, atol=3e-2)


def test_where_tangents_would_be_lost_it_says_so():
    """The operators themselves: PyTorch would go on with zeros."""
    x, weight = torch.randn(2, 4, 3), torch.randn(4, 4, 1)
    size = list(weight.shape)
    for function in (
        lambda x: tt.forward(x, weight),
        lambda x: tt.forward_pre(x, weight)[0],
        lambda x: tt.grad_input(x, weight),
        lambda x: tt.grad_weight(x, x, size, torch.float32)[0],
        lambda x: tt.forward(x=x, weight=weight),
    ):
        with pytest.raises(
            NotImplementedError,
            match=r"torch.ops.trigen.\w+ has no forward-mode derivative; allowed: trigen.torch.triangular_conv1d",
        ):
            jvp(function, (x,), (x,))
        function(x)
