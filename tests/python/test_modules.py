"""Modules: state dicts both ways, prefixes, decoding, the gating unit."""

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen.torch as tt
from torch import nn


def masked_conv(conv, x):
    mask = torch.ones(conv.weight.shape[0], conv.weight.shape[1]).tril().unsqueeze(-1)
    return nn.functional.conv1d(x, conv.weight * mask, conv.bias, padding="same")


@pytest.mark.parametrize("taps", [1, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_of_conv1d_both_ways(taps, bias):
    conv = nn.Conv1d(6, 6, taps, padding="same", bias=bias)
    mixer = tt.TriangularConv1d(6, taps, bias=bias)
    mixer.load_state_dict(conv.state_dict())
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(mixer(x), masked_conv(conv, x))
    back = nn.Conv1d(6, 6, taps, padding="same", bias=bias)
    back.load_state_dict(mixer.state_dict())
    assert torch.equal(back.weight, conv.weight)
    torch.testing.assert_close(mixer(x[0]), mixer(x)[0])


def test_heads_from_a_list_of_convolutions_both_ways():
    convs = nn.ModuleList([nn.Conv1d(5, 5, 3, padding="same") for _ in range(3)])
    mixer = tt.TriangularConv1d(5, 3, heads=3, split_heads=True)
    mixer.load_state_dict(convs.state_dict())
    x = torch.randn(2, 5, 12)
    want = torch.cat([masked_conv(conv, part) for conv, part in zip(convs, x.chunk(3, dim=-1))], dim=-1)
    torch.testing.assert_close(mixer(x), want)
    assert list(mixer.state_dict()) == ["0.weight", "1.weight", "2.weight", "0.bias", "1.bias", "2.bias"]
    convs.load_state_dict(mixer.state_dict())
    stacked = tt.TriangularConv1d(5, 3, heads=3)
    stacked.load_state_dict(mixer.state_dict())
    assert list(stacked.state_dict()) == ["weight", "bias"] and torch.equal(stacked.weight, mixer.weight)


def test_inside_a_model_and_other_shapes():
    class Model(nn.Module):
        def __init__(self, mixer):
            super().__init__()
            self.layers = nn.ModuleList([nn.ModuleDict({"conv": mixer})])

    grouped = nn.Conv1d(8, 8, 3, groups=2, padding="same")
    model = Model(tt.TriangularConv1d(4, 3, heads=2))
    model.load_state_dict(Model(grouped).state_dict())
    assert torch.equal(model.layers[0]["conv"].weight.reshape(8, 4, 3), grouped.weight)
    one = tt.TriangularConv1d(4)
    one.load_state_dict(nn.Linear(4, 4).state_dict())
    with pytest.raises(RuntimeError, match="size mismatch"):
        one.load_state_dict(nn.Linear(5, 5).state_dict())
    with pytest.raises(RuntimeError, match="Unexpected key"):
        one.load_state_dict({**one.state_dict(), "extra": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Missing key"):
        one.load_state_dict({"weight": one.weight})


def test_hooks_see_an_unbatched_call_once():
    mixer, seen = tt.TriangularConv1d(4), []
    mixer.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].shape, output.shape)))
    mixer(torch.randn(4, 6))
    assert seen == [((4, 6), (4, 6))]


def test_linear_on_the_last_axis():
    linear, mixer = nn.Linear(6, 6), tt.TriangularLinear(6)
    mixer.load_state_dict(linear.state_dict())
    linear.load_state_dict(mixer.state_dict())
    for shape in [(6,), (3, 6), (2, 3, 6), (2, 2, 3, 6)]:
        x = torch.randn(shape)
        torch.testing.assert_close(mixer(x), nn.functional.linear(x, linear.weight.tril(), linear.bias))


def test_initial_values_and_clear_outside():
    torch.manual_seed(0)
    mixer = tt.TriangularConv1d(16, 2, heads=2)
    outside = torch.ones(16, 16).triu(1).bool()
    assert mixer.weight[:, outside].count_nonzero() == 0 and mixer.weight[:, ~outside].count_nonzero() > 500
    assert mixer.weight.abs().max() <= 1 / 32**0.5
    conv = tt.TriangularConv1d(4)
    conv.load_state_dict({"weight": torch.full((4, 4, 1), 7.0), "bias": torch.zeros(4)})
    assert conv.weight.count_nonzero() == 16
    conv.clear_outside()
    assert conv.weight.count_nonzero() == 10
    assert tt.TriangularConv1d(4, fill="upper", diagonal=2).weight.count_nonzero() == 3
    linear = tt.TriangularLinear(4)
    assert linear.weight.count_nonzero() == 10


def test_meta_and_deepcopy():
    import copy

    mixer = tt.TriangularConv1d(4, 2, device="meta")
    assert mixer.weight.is_meta
    mixer = mixer.to_empty(device="cpu")
    mixer.reset_parameters()
    twin = copy.deepcopy(mixer)
    assert torch.equal(twin(torch.ones(1, 4, 3)), mixer(torch.ones(1, 4, 3)))


@pytest.mark.parametrize("heads,taps", [(1, 1), (2, 3)])
def test_prefix(heads, taps):
    mixer = tt.TriangularConv1d(8, taps, heads=heads, activation="gelu")
    x, gate = torch.randn(2, 8, 6), torch.randn(2, 8, 6)
    want = mixer(x, gate)
    for n in (1, 5, 8):
        torch.testing.assert_close(mixer(x[:, :n], gate[:, :n]), want[:, :n])
    mixer(x[:, :3]).sum().backward()
    gradient = mixer.weight.grad.reshape(heads, 8, 8, taps)
    assert (
        gradient[:, 3:].count_nonzero() == 0
        and gradient[:, :, 3:].count_nonzero() == 0
        and gradient[:, 2, :3].count_nonzero() > 0
    )


@pytest.mark.parametrize("heads,taps,padding", [(1, 1, "same"), (2, 3, "same"), (2, 4, "causal")])
@pytest.mark.parametrize("epilogue", [False, True])
def test_decoding_follows_forward(heads, taps, padding, epilogue):
    mixer = tt.TriangularConv1d(8, taps, heads=heads, activation="silu" if epilogue else None, padding=padding)
    x, gate = torch.randn(3, 8, 6), torch.randn(3, 8, 6)
    extra = dict(gate=gate, residual=x) if epilogue else {}
    want = mixer(x, **extra)
    for chunks in ([1] * 8, [5, 1, 1, 1], [3, 2, 3], [8]):
        cache, begin = mixer.new_cache(3, 6), 0
        for n in chunks:
            rows = slice(begin, begin + n)
            got = mixer.decode(x[:, rows], cache, **{name: value[:, rows] for name, value in extra.items()})
            torch.testing.assert_close(got, want[:, rows])
            begin += n
        cache.reset()
        torch.testing.assert_close(mixer.decode(x[:, :1], cache), mixer(x[:, :1]))


def test_decoding_below_the_diagonal():
    mixer = tt.TriangularConv1d(6, diagonal=-1)
    x = torch.randn(2, 6, 4)
    cache = mixer.new_cache(2, 4)
    got = torch.cat([mixer.decode(x[:, t : t + 1], cache) for t in range(6)], dim=1)
    torch.testing.assert_close(got, mixer(x).detach())


def test_decoding_in_half_precision_with_float32_weights():
    mixer = tt.TriangularConv1d(8, 2)
    x = torch.randn(1, 8, 4).bfloat16()
    want = mixer(x)
    cache = mixer.new_cache(1, 4, dtype=torch.bfloat16)
    got = torch.cat([mixer.decode(x[:, t : t + 1], cache) for t in range(8)], dim=1)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)


# ---- the gating unit: against the published form, written as its repositories write it ----------------------------------------


class PlainCausalSGU(nn.Module):
    def __init__(self, dim, tokens, heads, act):
        super().__init__()
        self.norm = nn.LayerNorm(dim // 2)
        self.heads, self.act = heads, act
        self.weight = nn.Parameter(torch.randn(heads, tokens, tokens) / tokens)
        self.bias = nn.Parameter(torch.ones(heads, tokens))
        self.register_buffer("mask", torch.ones(tokens, tokens).tril().bool())

    def forward(self, x, gate_res=None):
        n = x.shape[1]
        res, gate = x.chunk(2, dim=-1)
        gate = self.norm(gate)
        weight = (self.weight * self.mask[None])[:, :n, :n]
        gate = gate.unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3)
        gate = torch.einsum("bhnd,hmn->bhmd", gate, weight) + self.bias[None, :, :n, None]
        gate = gate.permute(0, 2, 1, 3).flatten(2)
        if gate_res is not None:
            gate = gate + gate_res
        return self.act(gate) * res


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("act,name", [(nn.Identity(), None), (nn.GELU(), "gelu")])
@pytest.mark.parametrize("attention", [False, True])
def test_gating_unit(heads, act, name, attention):
    plain = PlainCausalSGU(8, 6, heads, act)
    unit = tt.CausalSpatialGatingUnit(8, 6, heads, activation=act)
    assert unit.activation == name
    unit.load_state_dict(plain.state_dict())
    for n in (6, 4):
        x = torch.randn(2, n, 8)
        extra = torch.randn(2, n, 4) if attention else None
        one, two = plain(x, extra), unit(x, extra)
        torch.testing.assert_close(one, two)
        for a, b in zip(
            torch.autograd.grad(one.square().sum(), plain.parameters()),
            torch.autograd.grad(two.square().sum(), [unit.get_parameter(key) for key, _ in plain.named_parameters()]),
        ):
            torch.testing.assert_close(a, b)
    conv = {
        "norm.weight": torch.ones(4),
        "norm.bias": torch.zeros(4),
        "proj.weight": torch.randn(6, 6, 1),
        "proj.bias": torch.ones(6),
    }
    if heads == 1:
        unit.load_state_dict(conv)
        assert torch.equal(unit.weight[0], conv["proj.weight"][..., 0])


def test_gating_unit_starts_as_the_gate_itself():
    x = torch.randn(2, 6, 8)
    torch.testing.assert_close(tt.CausalSpatialGatingUnit(8, 6)(x), x[..., :4], atol=1e-2, rtol=1e-2)


# ---- frozen ------------------------------------------------------------------------------------------------------------------


def test_frozen_mixer():
    mixer = tt.TriangularConv1d(6, 3, activation="gelu")
    x = torch.randn(2, 6, 5)
    frozen = tt.freeze(mixer, x)
    torch.testing.assert_close(frozen(x), mixer(x).detach())
    assert not frozen(x).requires_grad
    with pytest.raises(
        ValueError,
        match=r"x \(shape \[2, 6, 5\]\) requires grad; a frozen plan has no derivative; allowed: torch.no_grad",
    ):
        frozen(x.clone().requires_grad_())
    with torch.no_grad():
        frozen(x.clone().requires_grad_())
    with pytest.raises(
        ValueError, match=r"x has shape \[1, 6, 5\], strides .* freeze the module again for another shape"
    ):
        frozen(x[:1])
    with pytest.raises(TypeError, match="module is a Linear; allowed: TriangularConv1d"):
        tt.freeze(nn.Linear(2, 2), x)
    with pytest.raises(ValueError, match=r"example has shape \[6, 5\]; allowed: rank 3"):
        tt.freeze(mixer, x[0])
