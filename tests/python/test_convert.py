"""The converter on models written as public masked mixers write them."""

import copy
import sys

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.library
import trigen.torch as tt
from torch import nn

T, D, VOCABULARY = 8, 12, 20


class FlatBlock(nn.Module):
    """Masks weight.data in each forward, as the flat masked mixer does."""

    def __init__(self, taps):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.conv = nn.Conv1d(T, T, taps, padding="same")
        self.feed = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.causal = True

    def forward(self, x):
        if self.causal:
            masked = torch.tril(self.conv.weight.permute(2, 0, 1))
            self.conv.weight.data = masked.permute(1, 2, 0).contiguous()
        x = self.conv(self.norm(x)) + x
        return self.feed(self.norm2(x)) + x


class HeadBlock(nn.Module):
    """Projected heads, one convolution each, in a Python loop."""

    def __init__(self, heads=2):
        super().__init__()
        self.project = nn.ModuleList([nn.Linear(D, D // heads) for _ in range(heads)])
        self.convs = nn.ModuleList([nn.Conv1d(T, T, 1) for _ in range(heads)])
        self.out = nn.Linear(D, D)
        self.causal = True

    def forward(self, x):
        parts = []
        for project, conv in zip(self.project, self.convs):
            if self.causal:
                conv.weight.data = torch.tril(conv.weight.squeeze(-1)).unsqueeze(-1)
            parts.append(conv(project(x)))
        return self.out(torch.cat(parts, dim=2)) + x


class ExpandedBlock(nn.Module):
    """Conv1d -> GELU -> Conv1d in a Sequential, masked inside the graph."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(MaskedConv1d(T, T, 1), nn.GELU(), MaskedConv1d(T, T, 1))

    def forward(self, x):
        return self.conv(x) + x


class MaskedConv1d(nn.Conv1d):
    def forward(self, x):
        return nn.functional.conv1d(x, self.weight * torch.ones(T, T).tril().unsqueeze(-1), self.bias)


class LinearBlock(nn.Module):
    """Mixes with nn.Linear(T, T) after a transpose; the mask is a buffer."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(T, T)
        self.register_buffer("mask", torch.ones(T, T).tril())

    def forward(self, x):
        self.mix.weight.data = self.mix.weight.data * self.mask
        return self.mix(x.transpose(1, 2)).transpose(1, 2) + x


class Model(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, D)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(D, VOCABULARY, bias=False)

    def forward(self, tokens, labels=None):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits


MODELS = {
    "flat": (lambda: Model(FlatBlock(1), FlatBlock(1)), ["blocks.0.conv", "blocks.1.conv"]),
    "taps": (lambda: Model(FlatBlock(3), FlatBlock(4)), ["blocks.0.conv", "blocks.1.conv"]),
    "heads": (lambda: Model(HeadBlock()), ["blocks.0.convs.0", "blocks.0.convs.1"]),
    "expanded": (lambda: Model(ExpandedBlock()), ["blocks.0.conv.0", "blocks.0.conv.2"]),
    "linear": (lambda: Model(LinearBlock()), ["blocks.0.mix"]),
}


@pytest.mark.parametrize("style", MODELS)
def test_models_compute_and_train_the_same(style):
    torch.manual_seed(1)
    make, names = MODELS[style]
    model, tokens = make(), torch.randint(VOCABULARY, (3, T))
    twin = copy.deepcopy(model)
    before = {name: parameter for name, parameter in twin.named_parameters()}
    guarded = style in ("flat", "taps", "heads")
    report = tt.convert(twin, tokens=T, example_inputs=(tokens,), unmask=("causal",) if guarded else ())
    assert list(report.converted) == names and names[0] in str(report)
    assert all(before[name] is parameter for name, parameter in twin.named_parameters())
    assert list(twin.state_dict()) == list(model.state_dict())
    if guarded:
        assert set(report.unmasked) == {f"blocks.{i}.causal" for i in range(len(model.blocks))}
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
    for _ in range(5):  # SGD: the leaked gradients of the masked entries reach nothing but those entries
        losses = []
        for m, optimiser in zip((model, twin), optimisers):
            loss, _ = m(tokens, labels=tokens)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[0], losses[1])
    model(tokens)  # masks once more
    model.load_state_dict(twin.state_dict())
    torch.testing.assert_close(model(tokens), twin(tokens))


class BidirectionalBlock(nn.Module):
    """One convolution reads the tokens before and at a row, the other one those after the next."""

    def __init__(self):
        super().__init__()
        self.conv, self.reverse = nn.Conv1d(T, T, 1), nn.Conv1d(T, T, 1)

    def forward(self, x):
        self.conv.weight.data = torch.tril(self.conv.weight.squeeze(-1)).unsqueeze(-1)
        self.reverse.weight.data = torch.triu(self.reverse.weight.squeeze(-1), diagonal=2).unsqueeze(-1)
        return self.conv(x) + self.reverse(x) + x


class UnprojectedHeads(nn.Module):
    """Each head mixes all features; their outputs are put side by side."""

    def __init__(self, heads=3):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(T, T, 1) for _ in range(heads)])
        self.out = nn.Linear(heads * D, D)

    def forward(self, x):
        for conv in self.convs:
            conv.weight.data = torch.tril(conv.weight.squeeze(-1)).unsqueeze(-1)
        return self.out(torch.cat([conv(x) for conv in self.convs], dim=2)) + x


class ParallelSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(T, T, 1) for _ in range(4)])

    def forward(self, x):
        for conv in self.convs:
            conv.weight.data = torch.tril(conv.weight.squeeze(-1)).unsqueeze(-1)
        return sum(nn.functional.gelu(conv(x)) for conv in self.convs) + x


@pytest.mark.parametrize("block,count", [(UnprojectedHeads, 3), (ParallelSum, 4)])
def test_other_arrangements_of_the_same_mixer(block, count):
    torch.manual_seed(2)
    model, tokens = Model(block(), block()), torch.randint(VOCABULARY, (3, T))
    want = model(tokens)
    report = tt.convert(model, tokens=T, example_inputs=(tokens,))
    assert len(report.converted) == 2 * count
    torch.testing.assert_close(model(tokens), want)


def test_both_triangles_in_two_calls():
    torch.manual_seed(3)
    model, tokens = Model(BidirectionalBlock()), torch.randint(VOCABULARY, (3, T))
    want = model(tokens)
    with pytest.raises(
        tt.ConversionError,
        match=r"lower triangle: choose with select=, or another fill= or diagonal=, among blocks.0.conv, blocks.0.reverse",
    ):
        tt.convert(model, example_inputs=(tokens,), select=lambda name, module: True)
    assert type(model.blocks[0].conv) is type(model.blocks[0].reverse) is nn.Conv1d
    report = tt.convert(model, tokens=T, example_inputs=(tokens,))  # what the size alone chose is tried one by one
    assert list(report.converted) == ["blocks.0.conv"] and type(model.blocks[0].reverse) is nn.Conv1d
    assert "with it alone converted: nothing masks it to its lower triangle" in report.skipped["blocks.0.reverse"]
    torch.testing.assert_close(model(tokens), want)
    with pytest.raises(tt.ConversionError, match=r"upper triangle \(diagonal=4\)"):
        tt.convert(
            model,
            tokens=T,
            example_inputs=(tokens,),
            select=lambda name, module: name.endswith(".reverse"),
            fill="upper",
            diagonal=4,
        )
    report = tt.convert(
        model,
        tokens=T,
        example_inputs=(tokens,),
        select=lambda name, module: name.endswith(".reverse"),
        fill="upper",
        diagonal=2,
    )
    assert list(report.converted) == ["blocks.0.reverse"] and "fill=upper, diagonal=2" in str(report)
    torch.testing.assert_close(model(tokens), want)
    with pytest.raises(TypeError, match="select='0'; allowed: a function"):
        tt.convert(nn.Sequential(nn.Linear(4, 4)), tokens=4, select="0")
    with pytest.raises(TypeError, match="allowed: an nn.Module"):
        tt.convert(nn.Linear, tokens=4)
    with pytest.raises(ValueError, match="fill='tril' is not known; allowed: lower, upper"):
        tt.convert(model, tokens=T, fill="tril")
    with pytest.raises(ValueError, match="math='fp8' is not known; allowed: default, simt, tf32"):
        tt.convert(model, tokens=T, math="fp8")
    assert tt.convert(ParallelSum(), tokens=T, math="simt").converted["convs.0"].math == "simt"


def test_a_dense_layer_is_found_out_and_everything_put_back():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(T, T, 1)

        def forward(self, x):
            return self.conv(x) + x

    model, tokens = Model(FlatBlock(1), Dense()), torch.randint(VOCABULARY, (2, T))
    conv, dense = model.blocks[0].conv, model.blocks[1].conv
    with pytest.raises(
        tt.ConversionError, match=r"outputs differ by .* after conversion; allowed: 0.001; .*blocks.1.conv"
    ):
        tt.convert(
            model, example_inputs=(tokens,), select=lambda name, module: name.endswith("conv"), unmask=("causal",)
        )
    assert model.blocks[0].conv is conv and model.blocks[1].conv is dense and model.blocks[0].causal
    want = model(tokens)
    report = tt.convert(model, tokens=T, example_inputs=(tokens,), unmask=("causal",))
    assert list(report.converted) == ["blocks.0.conv"] and not model.blocks[0].causal and model.blocks[1].conv is dense
    assert "nothing masks it to its lower triangle" in report.skipped["blocks.1.conv"]
    torch.testing.assert_close(model(tokens), want)


class Features(nn.Module):
    """As many features as tokens: the size alone does not tell a projection from a mixer."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(T, T)
        self.project = nn.Linear(T, T)

    def forward(self, x):
        with torch.no_grad():
            self.mix.weight.tril_()
        return x + self.project(self.mix(x.mT).mT)


def test_a_projection_of_as_many_features_as_tokens_stays():
    torch.manual_seed(1)
    model, x = Features(), torch.randn(2, T, T)
    report = tt.convert(copy.deepcopy(model), tokens=T)
    assert not report.converted and "numbers in its other triangle" in report.skipped["project"]
    want = model(x)
    report = tt.convert(copy.deepcopy(model), tokens=T)  # masked by then
    assert list(report.converted) == ["mix"]
    report = tt.convert(model, tokens=T, example_inputs=(x,))
    assert list(report.converted) == ["mix"] and "nothing masks it to its lower triangle" in report.skipped["project"]
    torch.testing.assert_close(model(x), want)


def test_an_expanded_pair_is_two_square_mixers():
    """What the refusal of a rectangular weight says: masked by torch.tril, the tokens beyond T between the two layers reach no output."""
    torch.manual_seed(0)
    first, second = nn.Conv1d(T, 2 * T, 1).double(), nn.Conv1d(2 * T, T, 1).double()
    for layer in (first, second):
        layer.weight.data = torch.tril(layer.weight.data.squeeze(-1)).unsqueeze(-1)
    with pytest.raises(ValueError, match=r"\[16, 8, 1\]: 16 output tokens and 8 input tokens"):
        tt.triangular_conv1d(torch.zeros(1, T, D).double(), first.weight)
    one, two = tt.TriangularConv1d(T, activation="gelu").double(), tt.TriangularConv1d(T).double()
    one.load_state_dict({"weight": first.weight[:T], "bias": first.bias[:T]})
    two.load_state_dict({"weight": second.weight[:, :T], "bias": second.bias})
    x = torch.randn(2, T, D).double()
    torch.testing.assert_close(two(one(x)), second(nn.functional.gelu(first(x))))


class DirectGating(nn.Module):
    """A gMLP's unit as older public ones have it: its convolution holds the parameters and is never called."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv1d(T, T, 1)
        self.register_buffer("mask", torch.ones(T, T).tril().unsqueeze(-1))
        self.causal = True

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        return torch.cat([u * nn.functional.conv1d(v, self.proj.weight * self.mask, self.proj.bias), u], dim=-1)


def test_what_the_model_never_calls_is_put_back_and_named():
    model, x = nn.Sequential(FlatBlock(1), DirectGating()), torch.randn(2, T, D)
    proj, want = model[1].proj, model(x)
    with trigen.record() as seen:
        report = tt.convert(model, tokens=T, example_inputs=(x,), unmask="causal")
    assert (
        list(report.converted) == ["0.conv"] and model[1].proj is proj and model[1].causal and len(seen.problems) == 1
    )
    assert report.unmasked == ["0.causal"]
    assert "1.proj: left as it is: the model never calls it on example_inputs: its weight is used directly" in str(
        report
    )
    assert "use CausalSpatialGatingUnit" in str(report)
    torch.testing.assert_close(model(x), want)
    assert "forward" not in vars(model[0].conv)  # nothing of the count is left
    model = nn.Sequential(DirectGating())
    report = tt.convert(model, tokens=T, example_inputs=(x,))
    assert not report.converted and str(report).startswith(
        "nothing was converted\n0.proj: left as it is: the model never calls it"
    )
    assert "not checked" in str(tt.convert(model, tokens=T))

    class ByForward(nn.Module):  # without hooks
        def __init__(self):
            super().__init__()
            self.conv = MaskedConv1d(T, T, 1)

        def forward(self, x):
            return self.conv.forward(x)

    assert tt.convert(ByForward(), tokens=T, example_inputs=(x,)).converted


def test_a_mask_that_stays_is_named():
    x = torch.randn(2, T, D)

    class InPlace(FlatBlock):
        def forward(self, x):
            with torch.no_grad():
                self.conv.weight.copy_(self.conv.weight.squeeze(-1).tril().unsqueeze(-1))
            return self.conv(x)

    class Scaled(FlatBlock):  # written, and no mask: the weight's other triangle is not empty
        def forward(self, x):
            with torch.no_grad():
                self.conv.weight.mul_(1)
            return nn.functional.conv1d(
                x, self.conv.weight.squeeze(-1).tril().unsqueeze(-1), self.conv.bias
            ) * 0 + self.inner(x)

        def inner(self, x):
            return self.conv(x) if isinstance(self.conv, tt.TriangularConv1d) else MaskedConv1d.forward(self.conv, x)

    class Behind(LinearBlock):  # of which no version tells
        def forward(self, x):
            self.mix.weight.data.mul_(self.mask)
            return self.mix(x.transpose(1, 2)).transpose(1, 2) + x

    for block in (FlatBlock(1), FlatBlock(3), LinearBlock(), InPlace(1), Behind()):
        model = nn.Sequential(block)
        report = tt.convert(model, tokens=T, example_inputs=(x,))
        ((name, mixer),) = report.converted.items()
        assert report.masked == [name] and not mixer.weight.detach().reshape(T, T, -1).movedim(-1, 0).triu(1).any()
        assert (
            f"note: the model still masks the weight of {name} in forward, which costs time and changes nothing: drop that line"
            in str(report)
        )
    for block, flags in ((FlatBlock(1), "causal"), (Scaled(1), ()), (ExpandedBlock(), ())):
        report = tt.convert(nn.Sequential(block), tokens=T, example_inputs=(x,), unmask=flags)
        assert report.converted and not report.masked and "note:" not in str(report)
    model = nn.Sequential(tt.TriangularConv1d(T), FlatBlock(1))  # zeros outside that nobody writes
    model[1].conv.weight.data = model[1].conv.weight.data.squeeze(-1).tril().unsqueeze(-1)
    model[1].causal = False
    report = tt.convert(model, tokens=T, example_inputs=(x,))
    assert not report.masked and not report.converted["1.conv"].weight.squeeze(-1).triu(1).any()


def test_a_second_convert_says_what_is_there():
    model, x = nn.Sequential(*(FlatBlock(1) for _ in range(12))), torch.randn(2, T, D)
    report = tt.convert(model, tokens=T, example_inputs=(x,), unmask="causal")
    lines = str(report).splitlines()
    assert lines[0].startswith("0.conv, 1.conv, 2.conv and 9 more: TriangularConv1d(8, ") and len(lines) == 3
    assert lines[-1].startswith("0.causal, 1.causal, 2.causal and 9 more = False")
    again = tt.convert(model, tokens=T, example_inputs=(x,))
    assert (
        not again.converted
        and str(again).splitlines()[1] == "0.conv, 1.conv, 2.conv and 9 more: left as they are: already trigen's"
    )
    unit = nn.Sequential(tt.CausalSpatialGatingUnit(2 * D, T))
    assert tt.convert(unit, tokens=T).skipped == {"0": "already trigen's"}
    for tokens in ("8", 8.0, True, 0):
        with pytest.raises(ValueError, match=f"tokens={tokens!r}; allowed: an integer of at least 1, or None"):
            tt.convert(model, tokens=tokens)


def test_what_is_left_alone_and_why():
    model = nn.Sequential()
    model.strided = nn.Conv1d(T, T, 3, stride=2, padding=1)
    model.valid = nn.Conv1d(T, T, 3)
    model.wide = nn.Conv1d(T, 2 * T, 1)
    model.dilated = nn.Conv1d(T, T, 3, dilation=2, padding="same")
    model.hooked = nn.Conv1d(T, T, 1)
    model.hooked.register_forward_hook(lambda *_: None)
    model.grouped = nn.Conv1d(2 * T, 2 * T, 3, groups=2, padding=1)
    model.other = nn.Linear(D, D)
    skipped = {
        "strided": "stride=2; allowed: 1",
        "valid": "padding=0 changes the number of features",
        "wide": "its weight is 16 x 8, not square",
        "dilated": "dilation=2; allowed: 1",
        "hooked": "it has hooks or parametrisations",
        "other": f"another size than tokens={T}",
    }
    report = tt.convert(model, tokens=T)
    assert list(report.converted) == ["grouped"] and model.grouped.heads == 2
    assert report.skipped.keys() == skipped.keys()
    for name, reason in skipped.items():
        assert report.skipped[name].startswith(reason)


class ScaledConv1d(nn.Conv1d):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_forward_of_its_own_is_not_lost_unseen():
    model, x = nn.Sequential(ScaledConv1d(T, T, 1)), torch.randn(2, T, D)
    before = model(x)
    report = tt.convert(model, tokens=T)
    assert report.skipped["0"].startswith(
        "ScaledConv1d has a forward of its own; allowed: example_inputs"
    ) and torch.equal(model(x), before)
    with pytest.raises(tt.ConversionError):
        tt.convert(model, tokens=T, example_inputs=(x,))
    masked = nn.Sequential(MaskedConv1d(T, T, 1))  # as its name says
    assert list(tt.convert(masked, tokens=T, example_inputs=(x,)).converted) == ["0"]


def test_a_shared_layer_stays_shared():
    shared = FlatBlock(1)
    twin = FlatBlock(1)
    twin.conv = shared.conv
    model = Model(shared, twin)
    tt.convert(model, tokens=T)
    assert model.blocks[0].conv is model.blocks[1].conv and isinstance(twin.conv, tt.TriangularConv1d)


def test_sixteen_bit_models_have_their_own_tolerance():
    torch.manual_seed(2)
    model, tokens = Model(FlatBlock(1), FlatBlock(3)).bfloat16(), torch.randint(VOCABULARY, (2, T))
    assert len(tt.convert(model, tokens=T, example_inputs=(tokens,), unmask=("causal",)).converted) == 2
    model = Model(FlatBlock(1))
    with torch.autocast("cpu", torch.bfloat16):
        assert len(tt.convert(model, tokens=T, example_inputs=(tokens,), unmask=("causal",)).converted) == 1


def test_a_converted_model_multiplies_float32_as_asked():
    with trigen.record() as seen:
        model = ParallelSum()
        tt.convert(model, tokens=T, math="f16x3")
        model(torch.randn(2, T, D))
    assert seen.counts == {f"forward,dtype=f32,B=2,H=1,T={T},D={D},K=1,pad=0,math=f16x3,epilogue=bias": 4}


CONVERT = sys.modules["trigen.torch.convert"]
INFO = trigen.library.PlanInfo(
    "", "V100", "sm_70", "simt:tile=64x64x16", "predicted", "none", "", "", "cache", "", "", "", 9.5, 9.0, 0, False, 0
)


def test_keep_dense_needs_a_gpu_to_time_on():
    for inputs in (dict(example_inputs=(torch.randn(2, T, D),)), dict(tokens=T)):
        with pytest.raises(ValueError, match="times both on a GPU"):
            trigen.torch.convert(FlatBlock(1), keep_dense="faster", unmask="causal", **inputs)
    with pytest.raises(ValueError, match="keep_dense='always' is not known; allowed: never, faster"):
        trigen.torch.convert(FlatBlock(1), tokens=T, keep_dense="always")


def test_keep_dense_leaves_what_is_as_fast(monkeypatch):
    """On times that are given: one of two blocks gains, the other is as fast as it was."""
    blocks = nn.Sequential(FlatBlock(1), FlatBlock(3))
    slow = blocks[0].conv
    timed = []

    def milliseconds(modules, x):
        timed.append((type(modules[1]).__name__, tuple(x.shape)))
        return [2.0, 1.0] if modules[0] is slow else [1.0, 0.99]

    monkeypatch.setattr(CONVERT, "_milliseconds", milliseconds)
    monkeypatch.setattr(CONVERT, "_is_on_gpu", lambda x: True)
    kept = blocks[1].conv
    report = trigen.torch.convert(
        blocks,
        example_inputs=(torch.randn(2, T, D),),
        select=lambda name, module: name.endswith("conv"),
        keep_dense="faster",
    )
    assert list(report.converted) == ["0.conv"] and blocks[1].conv is kept
    assert report.skipped == {
        "1.conv": f"dense is as fast for (2, {T}, {D}): 1.000 ms beside 0.990 ms, forward and backward, measured here"
    }
    assert timed == [("TriangularConv1d", (2, T, D))] * 2
    assert "1.conv: left as it is: dense is as fast" in str(report)


def test_the_report_says_where_dense_is_as_fast(monkeypatch):
    def plans():
        problem = f"forward,dtype=f32,B=2,H=1,T={T},D={D},K=1,pad=0,epilogue=bias"
        said = "a dense product on the masked weight is as fast: 9.0 us (estimated) beside 9.5 us (predicted)"
        return [
            INFO._replace(problem=problem, dense=said),
            INFO._replace(problem="forward,dtype=f32,B=7,T=9,D=9", dense=said),
            INFO._replace(problem=problem),
        ]

    monkeypatch.setattr(CONVERT.launch, "plans", plans)
    report = trigen.torch.convert(FlatBlock(1), tokens=T, example_inputs=(torch.randn(2, T, D),))
    assert (
        len(report.dense) == 1
        and str(report).endswith(f"note: {report.dense[0]}")
        and "is as fast: 9.0 us" in report.dense[0]
    )
