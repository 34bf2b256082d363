"""Decoding through the op `decode` on the emulated device: from NumPy arrays through the C interface, against the definition in loops, and
as modules call it, against forward."""

import ctypes

import pytest

np = pytest.importorskip("numpy", reason="[SKIP] numpy is not installed")
torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from reference import forward, in_triangle
from test_cuda_path import TOLERANCE, device  # noqa: F401 (a fixture)
from trigen import library as library_module
from trigen.torch import decoding, launch


def put(emulated, array):
    """A NumPy array in the emulated device's memory: its address."""
    array = np.ascontiguousarray(array)
    address = emulated.allocate(array.nbytes)
    emulated.write(address, array.ctypes.data, array.nbytes)
    return address


def read(address, shape):
    return np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(address)).reshape(shape).copy()


@pytest.mark.parametrize("layout", ["btd", "bdt"])
@pytest.mark.parametrize("H,K,pad,fill,diag", [(1, 1, 0, "lower", 0), (2, 3, 1, "lower", -1), (1, 2, 0, "upper", 1)])
def test_one_plan_makes_every_row(emulated, library, layout, H, K, pad, fill, diag):
    B, T, D = 2, 9, 5
    random = np.random.default_rng(1)
    x, w = (
        random.standard_normal((B, T, H * D)).astype(np.float32),
        random.standard_normal((H, T, T, K)).astype(np.float32),
    )
    bias = random.standard_normal((H, T)).astype(np.float32)
    want = forward(x, w, bias, pad=pad, fill=fill, diag=diag)
    runtime = library.shared_runtime()
    plan = runtime.plan(
        f"decode,dtype=f32,B={B},H={H},T={T},D={D},K={K},pad={pad},rows=3,layout={layout},fill={fill},diag={diag},epilogue=bias",
        0,
    )
    token = np.arange(T)
    inside = np.array([[in_triangle(t, s, fill, diag) for s in token] for t in token])
    poisoned = np.where(inside[None, :, :, None], w, np.float32("nan"))
    w_there, bias_there = put(emulated, poisoned), put(emulated, bias)
    scratch = emulated.allocate(plan.workspace_size) if plan.workspace_size else 0
    for first in range(T):
        for rows in (1, 2, 3):
            if first + rows > T:
                continue
            # Tokens that the rows do not reach hold NaN.
            seen = x.copy()
            seen[:, ~inside[first : first + rows].any(0)] = np.nan
            x_there = put(emulated, seen if layout == "btd" else seen.transpose(0, 2, 1))
            shape = (B, rows, H * D) if layout == "btd" else (B, H * D, rows)
            y_there = emulated.allocate(int(np.prod(shape)) * 4)
            plan.run(
                x=library_module.DeviceTensor(x_there),
                y=library_module.DeviceTensor(y_there),
                w=w_there,
                bias=bias_there,
                workspace=scratch,
                workspace_size=plan.workspace_size,
                first_row=first,
                rows=rows,
            )
            got = read(y_there, shape)
            got = got if layout == "btd" else got.transpose(0, 2, 1)
            np.testing.assert_allclose(
                got, want[:, first : first + rows], rtol=1e-5, atol=1e-5, err_msg=f"row {first}, {rows} rows"
            )
    plan.destroy()


def test_a_token_that_a_row_does_not_reach_has_no_effect_on_it(emulated, library):
    x, w = np.ones((1, 16, 8), np.float32), np.ones((16, 16), np.float32)
    x[:, 9] = np.nan
    for layout in ("btd", "bdt"):
        plan = library.shared_runtime().plan(f"decode,dtype=f32,B=1,T=16,D=8,rows=4,layout={layout}", 0)
        y = emulated.allocate(4 * 8 * 4)
        scratch = emulated.allocate(plan.workspace_size) if plan.workspace_size else 0
        plan.run(
            x=library_module.DeviceTensor(put(emulated, x if layout == "btd" else x.transpose(0, 2, 1))),
            y=library_module.DeviceTensor(y),
            w=put(emulated, w),
            workspace=scratch,
            workspace_size=plan.workspace_size,
            first_row=7,
            rows=4,
        )
        got = read(y, (4, 8) if layout == "btd" else (8, 4))
        got = got if layout == "btd" else got.T
        np.testing.assert_array_equal(got[:2], [[8] * 8, [9] * 8])
        assert np.isnan(got[2:]).all()
        plan.destroy()


def test_rows_are_checked(emulated, library):
    plan = library.shared_runtime().plan("decode,dtype=f32,B=1,T=8,D=8,rows=2", 0)
    x, w, y = (library_module.DeviceTensor(emulated.allocate(4 * 64)) for _ in range(3))
    for rows, text in (
        (dict(first_row=0, rows=0), "rows is 0; this plan makes 1 to 2 rows"),
        (dict(first_row=7, rows=2), "first_row is 7 for 2 rows"),
    ):
        with pytest.raises(trigen.BadRequest, match=text):
            plan.run(x=x, w=w.data, y=y, **rows)
    plan.destroy()


CASES = {
    "one token at a time": (dict(), [1] * 12),
    "a chunk in the middle": (dict(heads=2, kernel_size=3, activation="gelu"), [1, 4, 2, 1, 3, 1]),
    "strictly causal": (dict(diagonal=-2, bias=False), [2] * 6),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype,wdtype", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_decoding_follows_forward(device, case, dtype, wdtype, epilogue):  # noqa: F811
    options, chunks = CASES[case]
    mixer = tt.TriangularConv1d(12, dtype=wdtype, **options)
    x, gate = torch.randn(2, 12, 16).to(dtype), torch.randn(2, 12, 16).to(dtype)
    with torch.no_grad():
        want = mixer(x, gate, x) if epilogue else mixer(x)
    weight = device.put(mixer.weight.detach())
    bias = None if mixer.bias is None else device.put(mixer.bias.detach())
    begin = 0
    for n in chunks:
        rows, end = slice(begin, begin + n), begin + n
        seen = x.clone()
        seen[:, end:] = float("nan")  # not decoded yet
        extra = [device.put(tensor[:, rows].contiguous()) for tensor in (gate, x)] if epilogue else [None, None]
        got = decoding.rows(
            device.put(seen),
            weight,
            bias,
            *extra,
            mixer.heads,
            mixer.kernel_size,
            begin,
            end,
            mixer.pad,
            mixer.diagonal,
            mixer.activation or "none",
        )
        assert got.shape == (2, n, 16) and got.dtype == dtype
        there = device.put(seen)
        with trigen.record() as on_gpu:
            decoding.rows(
                there,
                weight,
                bias,
                *extra,
                mixer.heads,
                mixer.kernel_size,
                begin,
                end,
                mixer.pad,
                mixer.diagonal,
                mixer.activation or "none",
            )
        with trigen.record() as on_cpu:
            decoding.record(
                there,
                weight,
                bias,
                *extra,
                mixer.heads,
                mixer.kernel_size,
                n,
                mixer.pad,
                mixer.diagonal,
                mixer.activation or "none",
            )
        assert on_gpu.counts == on_cpu.counts and len(on_gpu.counts) == 1
        torch.testing.assert_close(got.clone(), want[:, rows], **TOLERANCE[dtype])
        begin = end
    texts = [info.problem for info in tt.plans()]
    assert len(texts) == len({decoding._capacity(n, 12) for n in chunks}) and all(
        text.startswith("decode,") for text in texts
    )


def test_many_rows_run_in_parts(device):  # noqa: F811
    mixer = tt.TriangularConv1d(150)
    x = torch.randn(1, 150, 8)
    got = decoding.rows(
        device.put(x),
        device.put(mixer.weight.detach()),
        device.put(mixer.bias.detach()),
        None,
        None,
        1,
        1,
        3,
        150,
        0,
        0,
        "none",
    )
    torch.testing.assert_close(got.clone(), mixer(x).detach()[:, 3:], rtol=1e-5, atol=1e-5)


def test_what_has_no_kernel_is_left_to_plain_torch(device):  # noqa: F811
    x, weight = torch.randn(1, 4, 8, dtype=torch.float64), torch.randn(4, 4, 1, dtype=torch.float64)
    assert decoding.rows(x, weight, None, None, None, 1, 1, 1, 2, 0, 0, "none") is None
    x, weight = x.float(), weight.float()
    assert (
        decoding.rows(x, weight, None, torch.ones(1, 1, 1), None, 1, 1, 1, 2, 0, 0, "none") is None
    )  # a gate that is broadcast
    assert decoding.rows(x, weight.half(), None, None, None, 1, 1, 1, 2, 0, 0, "none") is None


def test_decoding_is_recorded(device):  # noqa: F811
    x, weight = device.put(torch.randn(1, 8, 8)), device.put(torch.randn(8, 8, 1))
    with trigen.record() as seen:
        for t in range(3):
            decoding.rows(x, weight, None, None, None, 1, 1, t, t + 1, 0, 0, "none")
    assert seen.counts == {"decode,dtype=f32,B=1,H=1,T=8,D=8,K=1,pad=0": 3}
    assert len(launch.launches) == 1
    mixer = tt.TriangularConv1d(150, 3, heads=2)
    cache = mixer.new_cache(2, 8)
    with trigen.record() as seen:  # a CPU's
        for n in (5, 1, 1, 3, 100):
            mixer.decode(torch.randn(2, n, 8), cache)
    assert seen.counts == {
        "forward,dtype=f32,B=2,H=2,T=5,D=4,K=3,pad=1,walign=8,epilogue=bias": 1,
        "decode,dtype=f32,B=2,H=2,T=150,D=4,K=3,pad=1,epilogue=bias": 2,
        "decode,dtype=f32,B=2,H=2,T=150,D=4,K=3,pad=1,rows=4,epilogue=bias": 1,
        "decode,dtype=f32,B=2,H=2,T=150,D=4,K=3,pad=1,rows=64,epilogue=bias": 2,
    }
    for text in seen.problems:
        assert trigen.format_problem(trigen.parse_problem(text)) == text
