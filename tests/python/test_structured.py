"""StructuredMixer, and the converter's way with modules that repeat vectors, or are Toeplitz matrices or bands, on layers written as public ones
behave: x @ M on the last axis, M made of parameters weight, bias, decay_value and diag_weight."""

import copy
import re

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen.torch as tt
from torch import nn
from trigen.torch import recognise, scans, vectors

T, E = 12, 5


def repeated(v, along, decay=None, strict=False):
    """M[i, j] = v[i] (rows) or v[j] (columns) times decay^(j - i) for i <= j (or i < j)."""
    n = v.shape[-1]
    distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    m = (v[..., :, None] if along == "rows" else v[..., None, :]).expand(*v.shape, n)
    if decay is not None:
        m = m * decay ** distance.clamp(min=0)
    return torch.where(distance > 0 if strict else distance >= 0, m, torch.zeros_like(m))


class Layer(nn.Module):
    """x [B, E, T] @ matrix() + bias."""

    def __init__(self, vectors=1, bias=(T,), decay=None, diag=None, decay_constant=1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vectors, T))
        self.bias = nn.Parameter(torch.randn(bias))
        if decay is not None:
            self.decay_value = nn.Parameter(torch.rand(decay) * 0.15 + 0.88)
        if diag is not None:
            self.diag_weight = nn.Parameter(torch.randn(diag))
        self.decay_constant = decay_constant

    def forward(self, x):
        return x @ self.matrix() + self.bias

    def clipped(self, at=0, lowest=0.9, highest=1.0):
        return torch.clip(self.decay_value.reshape(-1)[at], min=lowest, max=highest)


class Column(Layer):
    def matrix(self):
        return repeated(self.weight[0], "columns", self.clipped() ** (1 / self.decay_constant))


class Row(Layer):
    def matrix(self):
        return repeated(self.weight[0], "rows", self.clipped() ** (1 / self.decay_constant))


class ColumnWithout(Layer):
    def matrix(self):
        return repeated(self.weight[0], "columns")


class Combined(Layer):
    def matrix(self):
        power = 1 / self.decay_constant
        return repeated(self.weight[0], "rows", self.clipped(0) ** power) + repeated(
            self.weight[1], "columns", self.clipped(1) ** power
        )


class CombinedWithAFactor(Layer):
    """The row repeat is divided by the constant, in place of taking a root."""

    def matrix(self):
        column = repeated(self.weight[1], "columns", self.clipped(1) ** (1 / self.decay_constant))
        return repeated(self.weight[0], "rows", self.clipped(0)) / self.decay_constant + column


class DiagonalColumn(Layer):
    def matrix(self):
        return repeated(self.weight[0], "columns", self.clipped(-1), strict=True) + torch.diag(self.diag_weight[0])


class ConstantDiagonalColumn(Layer):
    def matrix(self):
        own = self.diag_weight[0] * torch.eye(T, dtype=self.weight.dtype)
        return repeated(self.weight[0], "columns", self.clipped(), strict=True) + own


class Headed(Layer):
    """x [B * H, E, T]: the first half of the heads column repeats, the other row repeats, one decay (the second of two)."""

    def forward(self, x):
        heads = len(self.weight)
        decay = self.clipped(1) ** (1 / self.decay_constant) if hasattr(self, "decay_value") else None
        parts = [
            repeated(self.weight[: heads // 2], "columns", decay),
            repeated(self.weight[heads // 2 :], "rows", decay),
        ]
        batch = x.shape[0] // heads
        return torch.bmm(x, torch.cat(parts).repeat(batch, 1, 1)) + self.bias.repeat(batch, 1)[:, None, :]


class Bounds(Layer):
    def matrix(self):
        return repeated(self.weight[0], "rows", self.clipped(lowest=0.95, highest=0.99))


class Unclipped(Layer):
    def matrix(self):
        return repeated(self.weight[0], "rows", self.decay_value[0])


# name: (the layer, the mixer that loads its state dict)
LAYERS = {
    "column": (lambda: Column(decay=1), dict(decay="shared")),
    "column without decay": (lambda: ColumnWithout(), dict()),
    "column with a constant": (lambda: Column(decay=1, decay_constant=4), dict(decay="shared", decay_constant=4)),
    "row": (lambda: Row(decay=1, decay_constant=2), dict(kind="row", decay="shared", decay_constant=2)),
    "combined": (lambda: Combined(2, decay=(2, 1)), dict(kind="both", decay="each")),
    "combined with a constant": (
        lambda: Combined(2, decay=(2, 1), decay_constant=3),
        dict(kind="both", decay="each", decay_constant=3),
    ),
    "combined with a factor": (
        lambda: CombinedWithAFactor(2, decay=(2, 1), decay_constant=2),
        dict(kind="both", decay="each", decay_constant=(1, 2), scale=(1 / 2, 1)),
    ),
    "own diagonal": (lambda: DiagonalColumn(decay=1, diag=(1, T)), dict(decay="shared", diagonal="vector")),
    "own diagonal, the second decay": (
        lambda: DiagonalColumn(decay=(2, 1), diag=(1, T)),
        dict(decay="shared", diagonal="vector"),
    ),
    "constant diagonal": (lambda: ConstantDiagonalColumn(decay=1, diag=1), dict(decay="shared", diagonal="constant")),
    "heads": (
        lambda: Headed(4, (4, T), decay=(2, 1), decay_constant=2),
        dict(kind=("column", "column", "row", "row"), heads=4, decay="shared", decay_constant=2, heads_in_batch=True),
    ),
    "heads without decay": (
        lambda: Headed(2, (2, T)),
        dict(kind=("column", "row"), heads=2, heads_in_batch=True),
    ),
    "other bounds": (lambda: Bounds(decay=1), dict(kind="row", decay="shared", decay_range=(0.95, 0.99))),
    "unclipped": (
        lambda: Unclipped(decay=1),
        dict(kind="row", decay="shared", decay_range=(-float("inf"), float("inf"))),
    ),
}


def inputs(layer):
    return torch.randn(2 * (len(layer.weight) if layer.bias.dim() == 2 else 1), E, T)


@pytest.mark.parametrize("name", LAYERS)
def test_it_loads_the_layers_and_trains_as_they_do(name):
    torch.manual_seed(1)
    make, options = LAYERS[name]
    layer = make()
    mixer = tt.StructuredMixer(T, **options, layout="bdt")
    mixer.load_state_dict(layer.state_dict())
    x = inputs(layer)
    dy = torch.randn_like(x)
    y, want = mixer(x), layer(x)
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    y.backward(dy)
    want.backward(dy)
    for parameter, own in layer.named_parameters():
        got = getattr(mixer, parameter).grad
        right = own.grad
        if got.numel() < right.numel():  # one of two decays is used
            right = right.reshape(-1)[1]
        torch.testing.assert_close(got, right.reshape(got.shape), rtol=1e-3, atol=1e-3)
    own_state = mixer.state_dict()
    tt.StructuredMixer(T, **options, layout="bdt").load_state_dict(own_state)
    assert repr(mixer).startswith(f"StructuredMixer({T}, ")


class Model(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.feed = nn.Linear(T, T + 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.feed(x)


@pytest.mark.parametrize("at_one", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_convert_recognises_what_they_compute(name, at_one):
    """Also where every decay is 1, as they begin: nothing of a decay is seen in what the layer computes then."""
    torch.manual_seed(2)
    make, options = LAYERS[name]
    layer = make()
    if at_one and hasattr(layer, "decay_value"):
        nn.init.ones_(layer.decay_value)
    model, twin = Model(layer), Model(copy.deepcopy(layer))
    twin.load_state_dict(model.state_dict())
    x = inputs(layer)
    report = tt.convert(model, tokens=T, example_inputs=(x,))
    assert list(report.converted) == ["layers.0"] and "layers.0: StructuredMixer(12" in str(report)
    mixer = model.layers[0]
    expected = tt.StructuredMixer(T, **options, layout="bdt")
    assert mixer.extra_repr() == expected.extra_repr()
    assert mixer.weight is layer.weight and mixer.bias is layer.bias
    if (
        layer.bias.dim() == 1
        and hasattr(layer, "decay_value")
        and layer.decay_value.numel() == mixer.decay_value.numel()
    ):
        assert mixer.decay_value is layer.decay_value
    torch.testing.assert_close(model(x), twin(x), rtol=1e-4, atol=1e-4)
    for one in (model, twin):
        one(x).square().sum().backward()
    torch.testing.assert_close(mixer.weight.grad, twin.layers[0].weight.grad, rtol=1e-3, atol=1e-2)
    again = tt.convert(model, tokens=T)
    assert again.skipped["layers.0"] == "already trigen's"


AT = torch.arange(T)[None, :] - torch.arange(T)[:, None]  # of M = W^T: the row's token less the column's


class Toeplitz(Layer):
    """x [B, E, T], or [B * H, E, T] with heads [H, T]."""

    def matrix(self):
        m = torch.where(AT >= 0, self.weight[..., AT.clamp(min=0)], torch.zeros(T, T, dtype=self.weight.dtype))
        return m.squeeze(0) if m.dim() == 3 else m

    def forward(self, x):
        if self.bias.dim() == 1:
            return super().forward(x)
        batch = x.shape[0] // len(self.weight)
        return torch.bmm(x, self.matrix().repeat(batch, 1, 1)) + self.bias.repeat(batch, 1)[:, None, :]


class ToeplitzVector(nn.Module):
    """A weight of one axis, x [B, T, E], no bias."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(T))

    def forward(self, x):
        return torch.where(AT >= 0, self.weight[AT.clamp(min=0)], torch.zeros(T, T, dtype=x.dtype)).T @ x


class Local(nn.Module):
    """Each token reads the last N, itself included: windows of x [B, T, H * E], a row of the weight each."""

    def __init__(self, width=4, heads=1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*((heads,) if heads > 1 else ()), T, width))
        self.bias = nn.Parameter(torch.randn(*((heads,) if heads > 1 else ()), T))
        self.heads, self.width = heads, width

    def forward(self, x):
        windows = nn.functional.pad(x, (0, 0, self.width - 1, 0)).unfold(1, self.width, 1)  # [B, T, H * E, N]
        windows = windows.unflatten(2, (self.heads, -1))
        weight, bias = self.weight.reshape(self.heads, T, -1), self.bias.reshape(self.heads, T)
        return (torch.einsum("bthen,htn->bthe", windows, weight) + bias.T[:, :, None]).flatten(2)


FORMS = {
    "Toeplitz": (Toeplitz, (3, E, T), dict(form="toeplitz", layout="bdt")),
    "Toeplitz heads": (
        lambda: Toeplitz(3, (3, T)),
        (6, E, T),
        dict(form="toeplitz", heads=3, layout="bdt", heads_in_batch=True),
    ),
    "a vector": (ToeplitzVector, (3, T, E), dict(form="toeplitz", bias=False)),
    "a band": (Local, (3, T, E), dict(form="band", width=4)),
    "a band with heads": (lambda: Local(3, 2), (3, T, 2 * E), dict(form="band", width=3, heads=2)),
}


@pytest.mark.parametrize("name", FORMS)
def test_convert_recognises_toeplitz_matrices_and_bands(name):
    torch.manual_seed(3)
    make, shape, options = FORMS[name]
    layer, x = make(), torch.randn(shape)
    model, twin = nn.Sequential(layer), nn.Sequential(copy.deepcopy(layer))
    report = tt.convert(model, tokens=T)
    assert (
        list(report.converted) == ["0"]
        and f"0: TriangularConv1d({T}, " in str(report)
        and "not checked" not in str(report)
    )
    mixer = model[0]
    assert mixer.extra_repr() == tt.TriangularConv1d(T, **options).extra_repr()
    assert mixer.weight is layer.weight or name == "a vector"
    assert mixer.weight.data_ptr() == layer.weight.data_ptr()
    torch.testing.assert_close(model(x), twin(x), rtol=1e-4, atol=1e-4)
    for one in (model, twin):
        one(x).square().sum().backward()
    for one, two in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(one.grad.reshape(two.shape), two.grad, rtol=1e-4, atol=1e-3)
    fresh = tt.TriangularConv1d(T, **options)
    fresh.load_state_dict(twin[0].state_dict())
    torch.testing.assert_close(fresh(x), twin(x), rtol=1e-4, atol=1e-4)
    assert tt.convert(model, tokens=T).skipped["0"] == "already trigen's"


class ToeplitzBlock(nn.Module):
    """A block of a public causal mixer: features, then tokens by a Toeplitz matrix that every forward makes, flat or in heads."""

    def __init__(self, features, heads):
        super().__init__()
        self.norm, self.token_norm, self.heads = nn.LayerNorm(features), nn.LayerNorm(features), heads
        self.feed = nn.Sequential(nn.Linear(features, 2 * features), nn.SiLU(), nn.Linear(2 * features, features))
        self.mix = Toeplitz(heads, (heads, T) if heads > 1 else (T,))
        nn.init.normal_(self.mix.weight, std=0.1)

    def forward(self, x):
        x = self.feed(self.norm(x)) + x
        mixed = self.token_norm(x).transpose(1, 2)
        parts = mixed.unflatten(1, (self.heads, -1)).flatten(0, 1) if self.heads > 1 else mixed
        return self.mix(parts).reshape(mixed.shape).transpose(1, 2) + x


def test_a_language_model_of_toeplitz_layers_converts_by_one_call_and_trains_the_same():
    torch.manual_seed(4)
    features, words = 8, 20
    model = nn.Sequential(
        nn.Embedding(words, features),
        *(ToeplitzBlock(features, heads) for heads in (1, 2, 1)),
        nn.Linear(features, words, bias=False),
    )
    twin, tokens = copy.deepcopy(model), torch.randint(words, (4, T))
    optimisers = [torch.optim.AdamW(one.parameters(), lr=3e-3) for one in (model, twin)]  # made before
    report = tt.convert(twin, tokens=T, example_inputs=(tokens,))
    assert list(report.converted) == ["1.mix", "2.mix", "3.mix"] and report.checked
    assert list(twin.state_dict()) == list(model.state_dict())
    steps = []
    for _ in range(20):
        losses = []
        for one, optimiser in zip((model, twin), optimisers):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(one(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        steps.append(losses[0])
    assert steps[-1] < 0.9 * steps[0]
    model.load_state_dict(twin.state_dict())
    torch.testing.assert_close(model(tokens), twin(tokens), rtol=1e-4, atol=1e-4)


class Circulant(Layer):
    """Not causal: the distances go round."""

    def matrix(self):
        return self.weight[0][AT % T]


class Strict(Layer):
    """A Toeplitz matrix without the row's own token."""

    def matrix(self):
        return torch.where(AT > 0, self.weight[0][AT.clamp(min=1) - 1], torch.zeros(T, T, dtype=self.weight.dtype))


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return x * self.weight


class Taps(Layer):
    """Neighbouring features, each with a vector of its own."""

    def forward(self, x):
        k, padded = len(self.weight), nn.functional.pad(x, (0, 0, len(self.weight) - 1, 0))
        parts = [padded[:, j : j + x.shape[1]] @ repeated(self.weight[j], "columns") for j in range(k)]
        return sum(parts) + self.bias


class Curved(Layer):
    def forward(self, x):
        return nn.functional.silu(x @ repeated(self.weight[0], "columns")) + self.bias


class Stateful(Layer):
    def forward(self, x, index):
        return x


class Scaled(Layer):
    """A row repeat of another number than its vector's."""

    def matrix(self):
        return repeated(2 * self.weight[0], "rows")


OTHERS = {
    "a circulant": (lambda: Circulant(), "computes something else"),
    "no diagonal": (lambda: Strict(), "computes something else"),
    "a norm as long as there are tokens": (lambda: Norm(T), "computes something else"),
    "taps over features": (lambda: Taps(3), "computes something else"),
    "two taps": (lambda: Taps(2), "computes something else"),
    "a nonlinearity": (lambda: Curved(), "computes something else"),
    "another signature": (lambda: Stateful(), "could not be asked .* TypeError"),
    "a factor that no parameter says": (lambda: Scaled(), "computes something else"),
    "NaN": (lambda: ColumnNaN(), "computes something else"),
}


class ColumnNaN(Layer):
    def matrix(self):
        return repeated(self.weight[0], "columns") / 0 * 0


@pytest.mark.parametrize("name", OTHERS)
def test_convert_leaves_others_alone_with_a_reason(name):
    make, reason = OTHERS[name]
    model = Model(make(), nn.LayerNorm(T))
    before = list(model.layers)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    report = tt.convert(model, tokens=T)
    assert list(model.layers) == before and not report.converted and set(report.skipped) == {"layers.0", "feed"}
    assert re.search(reason, report.skipped["layers.0"])
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_convert_obeys_tokens_select_and_hooks():
    model = Model(ColumnWithout(), ColumnWithout(), ColumnWithout())
    model.layers[2].register_forward_hook(lambda *_: None)
    report = tt.convert(model, select=lambda name, module: name != "layers.1" and name != "feed")
    assert list(report.converted) == ["layers.0"] and "hooks" in report.skipped["layers.2"]
    assert "not checked" not in str(report)
    assert "another size" in tt.convert(Model(ColumnWithout()), tokens=7).skipped["layers.0"]
    assert not tt.convert(nn.Sequential(Norm(T)), tokens=T + 1).skipped  # no word about norms of other lengths
    assert not recognise.resembles(nn.Embedding(4, T)) and not recognise.resembles(nn.Linear(T, T))


@pytest.mark.parametrize(
    "options",
    [
        dict(kind="row", decay="shared"),
        dict(kind="both", decay="each", heads=2, diagonal="constant"),
        dict(kind=("row", "column"), heads=2, decay="each", diagonal="vector", bias=False),
    ],
)
def test_decoding_is_forwards_rows(options):
    torch.manual_seed(3)
    mixer = tt.StructuredMixer(T, **options)
    if mixer.decay_value is not None:
        nn.init.uniform_(mixer.decay_value, 0.9, 1)
    x = torch.randn(2, T, 6)
    y = mixer(x)
    state = mixer.state(x[:, :5])
    for t in range(5, T):
        row, state = mixer.step(x[:, t], t, state)
        torch.testing.assert_close(row, y[:, t], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mixer(x[:, :7]), y[:, :7])


def test_a_sum_of_both_is_its_parts_whatever_the_heads():
    torch.manual_seed(4)
    mixer = tt.StructuredMixer(T, "both", heads=2, decay="each", diagonal="vector")
    nn.init.uniform_(mixer.decay_value, 0.9, 1)
    nn.init.normal_(mixer.bias)
    x = torch.randn(2, T, 2 * E)
    decay = mixer.decay_value.reshape(2, 2, 1, 1).clip(0.9, 1)
    m = repeated(mixer.weight[0], "rows", decay[0], strict=True) + repeated(
        mixer.weight[1], "columns", decay[1], strict=True
    )
    m = m + torch.diag_embed(mixer.diag_weight)
    want = torch.einsum("bshd,hst->bthd", x.unflatten(2, (2, E)), m) + mixer.bias.T[None, :, :, None]
    torch.testing.assert_close(mixer(x), want.flatten(2), rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert mixer(x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "options",
    [
        dict(decay="shared", decay_constant=2.0),
        dict(kind="both", decay="each", heads=2, diagonal="constant"),
        dict(kind=("row", "column"), heads=2, decay="each", diagonal="vector", bias=False),
    ],
)
def test_compiled_and_by_transforms_as_in_eager_mode(options):
    torch.manual_seed(5)
    mixer = tt.StructuredMixer(T, **options)
    nn.init.uniform_(mixer.decay_value, 0.85, 1.05)
    names, leaves = zip(*mixer.named_parameters())
    x = torch.randn(2, T, 8, requires_grad=True)
    dy = torch.randn(2, T, 8)

    def close(got, want):
        for one, two in zip(got, want):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)

    compiled = torch.compile(mixer, backend="aot_eager", dynamic=True, fullgraph=True)
    for n in (T, 7, 5):
        part = x[:, :n].detach().requires_grad_()
        y, other = mixer(part), compiled(part)
        close([other], [y])
        close(*(torch.autograd.grad(one, (part, *leaves), dy[:, :n]) for one in (other, y)))

    def call(parameters, x):
        return torch.func.functional_call(mixer, dict(zip(names, parameters)), (x,))

    def gradients(parameters, x):
        return torch.func.grad(lambda *given: (call(*given) * dy).sum(), argnums=(0, 1))(parameters, x)

    want = torch.autograd.grad(mixer(x), (*leaves, x), dy)
    values, token = tuple(one.detach() for one in leaves), x.detach()
    by_func, dx = gradients(values, token)
    close((*by_func, dx), want)
    doubled = [torch.stack([one, 2 * one]) for one in values]
    close([torch.vmap(call, in_dims=(0, None))(doubled, token)[1]], [call([2 * one for one in values], token)])
    both = torch.autograd.grad(mixer(x), (*leaves, x), torch.stack([dy, 2 * dy]), is_grads_batched=True)
    close([one[1] for one in both], [2 * one for one in want])

    def loss(of):
        return sum(one.square().sum() for one in of)

    first = torch.autograd.grad(mixer(x), (*leaves, x), dy, create_graph=True)
    second = torch.autograd.grad(loss(first), leaves[:1])
    right = torch.func.grad(lambda weight: loss((lambda g: (*g[0], g[1]))(gradients((weight, *values[1:]), token))))
    torch.testing.assert_close(second[0], right(values[0]), rtol=1e-3, atol=1e-3)


def test_constants_are_kept_for_plain_eager_calls_alone(monkeypatch):
    """What a fake tensor mode, a compiler or a graph's capture makes is not what later calls may read."""
    mixer, x = tt.StructuredMixer(T, ("row", "column"), heads=2), torch.randn(2, T, 8)
    want = mixer(x)
    monkeypatch.setattr(vectors, "_kept", {})
    scans._calls.clear()
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert mixer(mode.from_tensor(x)).shape == x.shape
    torch.compile(mixer, backend="aot_eager")(x)
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "_capturing", lambda device: True)
        assert torch.equal(mixer(x), want) and not vectors._kept
        assert torch.equal(mixer(x), want) and not vectors._kept
    with torch.inference_mode():
        mixer(x)
    assert len(vectors._kept) == 1 and not any(one.is_inference() for one in vectors._kept.values())
    assert torch.equal(mixer(x), want)


def test_bad_arguments_are_refused_in_words():
    for message, call in {
        "tokens=0; allowed": lambda: tt.StructuredMixer(0),
        "kind='rows'": lambda: tt.StructuredMixer(T, "rows"),
        "kind=None with heads=1; allowed: 'row', 'column'": lambda: tt.StructuredMixer(4, None),
        r"kind=\('row',\) with heads=2; allowed: 'row', 'column', 'both', or 2 of": lambda: tt.StructuredMixer(
            T, ("row",), heads=2
        ),
        "decay='learned' is not known; allowed: None, shared, each": lambda: tt.StructuredMixer(T, decay="learned"),
        "heads_in_batch with layout='btd'": lambda: tt.StructuredMixer(T, heads=2, heads_in_batch=True),
        "decay_constant=0; allowed": lambda: tt.StructuredMixer(T, decay="shared", decay_constant=0),
        r"decay_range=\(1, 0.9\)": lambda: tt.StructuredMixer(T, decay="shared", decay_range=(1, 0.9)),
        r"x has shape \[3, 4, 12\]; allowed: \[batch \* 2": lambda: tt.StructuredMixer(
            T, heads=2, layout="bdt", heads_in_batch=True
        )(torch.zeros(3, 4, T)),
        r"state has shape \[2, 4\]; allowed: \[2, batch, features\]": lambda: tt.StructuredMixer(T, "both").step(
            torch.zeros(2, 4), 0, torch.zeros(2, 4)
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
