"""Bad input: every message names the argument, its shape and what is allowed. The same text from the plain and the fake
implementation."""

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen.torch as tt

X = torch.zeros(2, 4, 6)
W = torch.zeros(4, 4, 3)
BIAS = torch.zeros(4)
W2 = torch.zeros(2, 4, 4, 3)

FORWARD = [
    (dict(x=X[0]), ValueError, r"x has shape \[4, 6\]; allowed: rank 3, \[batch, tokens, features\]"),
    (dict(x=X.numpy()), TypeError, r"x is a numpy.ndarray; allowed: a torch.Tensor; torch.as_tensor\(x\) makes one"),
    (
        dict(x=X.transpose(1, 2)),
        ValueError,
        r"x has 6 tokens \(shape \[2, 6, 4\], layout=btd\) while weight has shape \[4, 4, 3\]; allowed: at most 4",
    ),
    (dict(x=X[:, :0]), ValueError, r"x has shape \[2, 0, 6\]; every size but the batch's must be at least 1"),
    (
        dict(weight=torch.zeros(4)),
        ValueError,
        r"weight has shape \[4\]; allowed: \[T, T\], \[T, T, K\] or \[heads, T, T, K\]",
    ),
    (
        dict(weight=torch.zeros(8, 4, 1)),
        ValueError,
        r"weight has shape \[8, 4, 1\]: 8 output tokens and 4 input tokens; allowed: a square",
    ),
    (
        dict(weight=torch.zeros(4, 4, 4, 3)),
        ValueError,
        r"x has 6 features \(shape \[2, 4, 6\]\) while weight \[4, 4, 4, 3\] has 4 heads; allowed: a multiple of 4$",
    ),
    (
        dict(weight=W.double()),
        TypeError,
        r"weight has dtype torch.float64 while x has torch.float32; allowed beside it: torch.float32",
    ),
    (
        dict(x=X.half(), weight=W.bfloat16()),
        TypeError,
        r"allowed beside it: torch.float16 or torch.float32; cast one of them",
    ),
    (dict(x=X.long(), weight=W.long()), TypeError, r"x has dtype torch.int64; allowed: float16, bfloat16, float32"),
    (dict(x=X.to(torch.complex64), weight=W), TypeError, r"x has dtype torch.complex64"),
    (dict(bias=torch.zeros(3)), ValueError, r"bias has shape \[3\] while weight has \[4, 4, 3\]; allowed: \[4\]"),
    (
        dict(weight=W2, bias=BIAS),
        ValueError,
        r"bias has shape \[4\] while weight has \[2, 4, 4, 3\]; allowed: \[2, 4\]",
    ),
    (dict(bias=BIAS.half()), TypeError, r"bias has dtype torch.float16; allowed: weight's dtype torch.float32"),
    (dict(gate=X[..., :3]), ValueError, r"gate has shape \[2, 4, 3\]; allowed: x's shape \[2, 4, 6\]"),
    (dict(residual=X.double()), TypeError, r"residual has dtype torch.float64; allowed: x's dtype torch.float32"),
    (dict(padding=3), ValueError, r"pad=3 is outside the taps; allowed: 0 to K-1 = 2"),
    (dict(padding="valid"), ValueError, r"padding='valid' is not known; allowed: 'same', 'causal'"),
    (dict(layout="tbd"), ValueError, r"layout='tbd' is not known; allowed: btd, bdt"),
    (dict(fill="diagonal"), ValueError, r"fill='diagonal' is not known; allowed: lower, upper"),
    (dict(activation="relu"), ValueError, r"activation='relu' is not known; allowed: none, gelu, silu"),
    (dict(math="fp8"), ValueError, r"math='fp8' is not known; allowed: default, simt, tf32, f16x3"),
    (
        dict(weight=W.to("meta")),
        ValueError,
        r"weight \(shape \[4, 4, 3\]\) is on meta while x is on cpu; allowed: one device",
    ),
]


@pytest.mark.parametrize(
    "change,kind,text", FORWARD, ids=lambda value: str(value)[:40] if isinstance(value, str) else None
)
def test_forward(change, kind, text):
    arguments = dict(x=X, weight=W, bias=None)
    arguments.update(change)
    x, weight = arguments.pop("x"), arguments.pop("weight")
    with pytest.raises(kind, match=text):
        tt.triangular_conv1d(x, weight, **arguments)


@pytest.mark.parametrize("x,kind", [(X.numpy(), "numpy.ndarray"), (X.tolist(), "builtins.list")])
def test_modules_name_what_is_no_tensor(x, kind):
    for mixer in (tt.TriangularConv1d(4, 3), tt.TriangularLinear(6)):
        with pytest.raises(TypeError, match=f"x is a {kind}; allowed: a torch.Tensor"):
            mixer(x)


@pytest.mark.parametrize("index", [0, 2, 5, 6, 11, 14])
def test_fake_says_the_same(index):
    from torch._subclasses.fake_tensor import FakeTensorMode

    change, kind, text = FORWARD[index]
    arguments = dict(x=X, weight=W, bias=None)
    arguments.update(change)
    with FakeTensorMode() as mode:
        arguments = {k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        with pytest.raises(kind, match=text):
            tt.triangular_conv1d(arguments.pop("x"), arguments.pop("weight"), **arguments)


def test_gradients():
    with pytest.raises(ValueError, match=r"grad has 5 tokens"):
        tt.grad_input(torch.zeros(2, 5, 6), W)
    with pytest.raises(ValueError, match=r"grad has shape \[2, 4, 5\]; allowed: x's shape \[2, 4, 6\]"):
        tt.grad_weight(X[..., :5], X, [4, 4, 3], torch.float32)
    with pytest.raises(TypeError, match=r"weight has dtype torch.float16 while x has torch.float32"):
        tt.grad_weight(X, X, [4, 4, 3], torch.float16)


def test_sizes_beyond_the_kernels():
    meta = torch.zeros(1, device="meta")
    with pytest.raises(ValueError, match=r"batch \* features = 2199023255552; allowed: at most 2147418112"):
        tt.triangular_conv1d(meta.new_empty(2**20, 4, 2**21), meta.new_empty(4, 4))


def test_modules():
    with pytest.raises(ValueError, match=r"tokens=0; allowed: an integer of at least 1"):
        tt.TriangularConv1d(0)
    with pytest.raises(ValueError, match=r"padding=4; allowed: 'same', 'causal' or 0 to kernel_size-1 = 2"):
        tt.TriangularConv1d(4, 3, padding=4)
    for name, value, allowed in (
        ("layout", "tbd", "btd, bdt"),
        ("fill", "tril", "lower, upper"),
        ("math", "fp8", "default, simt, tf32"),
    ):
        with pytest.raises(ValueError, match=f"{name}='{value}' is not known; allowed: {allowed}"):
            tt.TriangularConv1d(4, **{name: value})
    with pytest.raises(ValueError, match="diagonal=1.5; allowed: an integer"):
        tt.TriangularConv1d(4, diagonal=1.5)
    with pytest.raises(ValueError, match="activation='tanh' has no kernel; allowed: None, 'gelu', 'silu'"):
        tt.TriangularConv1d(4, activation="tanh")
    with pytest.raises(ValueError, match="approximate='tanh'"):
        tt.TriangularConv1d(4, activation=torch.nn.GELU(approximate="tanh"))
    with pytest.raises(ValueError, match="dim=6 with heads=2; allowed: a multiple of 2 \\* heads"):
        tt.CausalSpatialGatingUnit(6, 4, heads=2)
    with pytest.raises(ValueError, match="decoding needs fill='lower'"):
        tt.TriangularConv1d(4, fill="upper").new_cache(1, 2)
    mixer = tt.TriangularConv1d(4)
    cache = mixer.new_cache(1, 2)
    with pytest.raises(ValueError, match=r"x has shape \[2, 1, 2\]; allowed beside this cache: \[1, n, 2\]"):
        mixer.decode(torch.zeros(2, 1, 2), cache)
    with pytest.raises(ValueError, match=r"x has 5 tokens after 0 in the cache; allowed: 4 in all"):
        mixer.decode(torch.zeros(1, 5, 2), cache)
    two = mixer.new_cache(2, 2)
    mixer.decode(torch.zeros(2, 1, 2), two)
    for name in ("gate", "residual"):
        with pytest.raises(ValueError, match=rf"{name} has shape \[1, 1, 2\]; allowed: x's shape \[2, 1, 2\]"):
            mixer.decode(torch.zeros(2, 1, 2), two, **{name: torch.ones(1, 1, 2)})  # which would broadcast
    with pytest.raises(ValueError, match=r"x \(shape \[2, 1, 2\]\) is on meta while the cache is on cpu"):
        mixer.decode(torch.zeros(2, 1, 2, device="meta"), two)
    assert two.length == 1
    with pytest.raises(ValueError, match="give tokens, select or example_inputs"):
        tt.convert(mixer)
    with pytest.raises(ValueError, match="policy='maybe' is not known; allowed: error, plain"):
        tt.set_fallback("maybe")
