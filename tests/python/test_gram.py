"""gram and orthogonalize: plain torch against double precision, and the kernels on the emulated device against both."""

import os
import re
import shutil
import subprocess
import threading

import pytest

torch = pytest.importorskip("torch")

import trigen  # noqa: E402
from trigen.torch import (  # noqa: E402
    JORDAN,
    POLAR_EXPRESS,
    Muon,
    gram,
    launch,  # noqa: E402
    matrices,
    muon,
    orthogonalize,
    plans,
)

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6}


@pytest.fixture()
def device(emulated, monkeypatch):
    """The emulated device, whose tensors count as a GPU's."""
    emulated.stand_in(monkeypatch)
    monkeypatch.setattr(launch, "pointers_on", lambda addresses, device: emulated.put(torch.tensor(addresses)))
    monkeypatch.setattr(matrices, "on_gpu", lambda one: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    yield emulated
    trigen.torch.forget_plans()
    assert emulated.reports() == "[]"


@pytest.fixture()
def moved(device, monkeypatch):
    """What lists make copies of, by name, and the addresses that they give to the device."""
    moves = []

    def watch(module, name, said):
        kept = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **named: (moves.append(said(given)), kept(*given, **named))[1])

    watch(torch, "_foreach_copy_", lambda given: "copies")
    watch(torch, "cat", lambda given: "cat")
    watch(launch, "pointers_on", lambda given: given[0])
    return moves


def exact(a, b, c, alpha, beta, gamma):
    d = alpha * (a.double() @ b.double().mT)
    if c is not None:
        d = d + beta * c.double()
    return d + gamma * torch.eye(d.shape[-1], dtype=torch.double)


def inputs(shape, dtype, out, tall=False):
    torch.manual_seed(3)
    a = torch.randn(shape).to(dtype)
    if tall:
        a = a.mT.contiguous().mT
    c = torch.randn(*shape[:-2], shape[-2], shape[-2]).to(out)
    return a, (c + c.mT) / 2


CASES = {
    "one matrix": dict(shape=(40, 72)),
    "a batch": dict(shape=(2, 3, 33, 20)),
    "rows that are not aligned": dict(shape=(3, 19, 21)),
    "k contiguous in the other axis": dict(shape=(2, 48, 40), tall=True),
    "f32 out": dict(shape=(2, 40, 24), out=torch.float32),
    "bf16": dict(shape=(2, 40, 24), dtype=torch.bfloat16),
    "f32": dict(shape=(2, 17, 24), dtype=torch.float32),
}


@pytest.mark.parametrize("fill", ["both", "lower", "upper"])
@pytest.mark.parametrize("case", CASES)
def test_gram(device, case, fill):
    options = {"dtype": torch.float16, **CASES[case]}
    dtype = options["dtype"]
    out = options.get("out", dtype)
    a, c = inputs(options["shape"], dtype, out, options.get("tall", False))
    want = exact(a, a, c, -0.5, 2.0, 3.0)
    given = dict(alpha=-0.5, beta=2.0, gamma=3.0, fill=fill, dtype=out)
    got = gram(device.put(a), c=device.put(c), **given)
    assert got.dtype == out and got.shape == c.shape
    inside = torch.ones(c.shape[-2:], dtype=torch.bool)
    inside = inside if fill == "both" else inside.tril() if fill == "lower" else inside.triu()
    error = ((got.double() - want)[..., inside]).norm() / want[..., inside].norm()
    assert error < TOLERANCE[out], error
    if fill == "both":
        assert torch.equal(got.view(-1), got.mT.contiguous().view(-1))
    plain = matrices._plain(a, a, c, -0.5, 2.0, 3.0, fill, torch.zeros_like(c))
    assert ((plain.double() - want)[..., inside]).norm() / want[..., inside].norm() < TOLERANCE[out]
    assert "gram," in plans()[0].problem and ("mirror" in plans()[0].problem) == (fill == "both")


def test_a_second_call_is_a_lookup_and_b_is_another_tensor(device):
    a, c = inputs((2, 24, 24), torch.float16, torch.float16)
    r = gram(device.put(a))
    z = gram(r, c=r, alpha=0.25, beta=0.5, gamma=1.0)
    both = gram(r, z)
    assert len(plans()) == 2
    want = r.double() @ z.double()
    assert (both - want).norm() < 2e-3 * want.norm()
    again = gram(r, z, out=device.empty(both.shape, both.dtype))
    assert torch.equal(again, both) and len(plans()) == 2
    in_place = device.put(z)
    assert gram(r, c=in_place, alpha=0.25, beta=0.5, out=in_place) is in_place


def lists_of(put, case, n=5):
    """(a, c): lists of matrices, each in memory of its own."""
    torch.manual_seed(4)
    shape, dtype, wdtype, shift, tall = case
    a, c = [], []
    for _ in range(n):
        one = rows_apart(put, shape[::-1] if tall else shape, dtype, shift)
        a.append(one.mT if tall else one)
        square = torch.randn(shape[0], shape[0]).to(wdtype)
        wide = torch.zeros(shape[0], shape[0] + 24, dtype=wdtype)
        wide[:, shift : shift + shape[0]] = (square + square.mT) / 2
        c.append(put(wide)[:, shift : shift + shape[0]])
    return a, c


LISTS = {
    "rows of 16 bytes": ((40, 72), torch.float16, torch.float16, 0, False),
    "an element's alignment": ((33, 35), torch.bfloat16, torch.bfloat16, 3, False),
    "tall": ((40, 24), torch.float16, torch.float32, 0, True),
    "f32": ((17, 24), torch.float32, torch.float32, 0, False),
}


@pytest.mark.parametrize("fill", ["both", "upper"])
@pytest.mark.parametrize("case", LISTS)
def test_lists_have_the_bits_of_a_batch(device, moved, case, fill):
    a, c = lists_of(device.put, LISTS[case])
    given = dict(alpha=-0.5, beta=2.0, gamma=3.0, fill=fill, dtype=c[0].dtype)
    whole = torch.stack(a) if not LISTS[case][4] else torch.stack([one.mT for one in a]).mT
    inside = torch.ones(c[0].shape, dtype=torch.bool)
    inside = inside if fill == "both" else inside.triu()
    wanted = gram(
        device.put(whole.mT).mT if LISTS[case][4] else device.put(whole), c=device.put(torch.stack(c)), **given
    )
    assert moved == []
    with trigen.record() as seen:
        got = gram(a, c=c, **given)
    assert all(torch.equal(one[inside], two[inside]) for one, two in zip(got, wanted))
    assert len(moved) == 1 and moved[0] == [one.data_ptr() for one in (*a, *c)]
    assert len(seen.problems) == 1 and "pointers=1" in seen.problems[0]
    out = [
        device.put(torch.full((one.shape[0], one.shape[0] + 8), 7.0, dtype=one.dtype))[:, : one.shape[0]] for one in c
    ]
    results = gram(a, a, c, out=out, **given)
    assert all(one is two for one, two in zip(results, out)) and len(moved) == 2
    assert all(torch.equal(one[inside], two[inside]) for one, two in zip(out, wanted))
    assert all((one[~inside] == 7).all() for one in out)
    gram(a, c=c, out=c, **given)  # in place
    assert all(torch.equal(one[inside], two[inside]) for one, two in zip(c, wanted))


def test_lists_of_parts_of_tensors_and_of_one(written, moved):
    device = written
    a, _ = inputs((6, 40, 72), torch.float16, torch.float16)
    a = device.put(a)
    wanted = gram(a)
    assert all(torch.equal(one, two) for one, two in zip(gram(list(a.unbind())[::2]), wanted[::2]))
    assert torch.equal(gram([a[3]])[0], wanted[3]) and moved == []
    assert [problem.problem.count("pointers") for problem in plans()] == [0] * len(plans())
    assert gram([]) == []
    # Of two orders and distances: copied.
    strange = [a[0], device.put(a[1].mT.contiguous()).mT, rows_apart(device.put, (40, 72), torch.float16, 8)]
    assert all(torch.equal(one, two) for one, two in zip(gram(strange)[:2], wanted[:2])) and moved == ["copies"]


def test_lists_of_a_capture_are_copied(written, moved, monkeypatch):
    device = written
    a, c = lists_of(device.put, LISTS["rows of 16 bytes"], 3)
    wanted = gram(a, c=c)
    monkeypatch.setattr(launch, "is_capturing", lambda: True)
    assert all(torch.equal(one, two) for one, two in zip(gram(a, c=c), wanted))
    assert moved[1:] == ["copies", "copies"]


@pytest.mark.parametrize(
    "given, text",
    [
        (lambda a, c: dict(b=a[0]), "b is a Tensor beside a list of 3 matrices; allowed: a list as long, or none"),
        (lambda a, c: dict(c=c[:2]), "c is a list of 2 beside a list of 3 matrices"),
        (lambda a, c: dict(out=[a[0][:, :40], c[0], c[1]]), r"out\[0\] overlaps a\[0\] in memory"),
        (lambda a, c: dict(out=[c[0], c[1], c[0]]), r"out\[.\] overlaps out\[.\] in memory"),
        (lambda a, c: dict(c=c, out=c[1:] + c[:1]), r"out\[.\] overlaps c\[.\] in memory"),
        (lambda a, c: dict(a=[a[0], a[1][:20], a[2]]), r"a has a torch.float16 \[20, 72\] on cpu beside"),
        (lambda a, c: dict(alpha=0.0), "alpha=0 leaves nothing to multiply"),
    ],
)
def test_lists_that_are_refused(given, text):
    a, c = lists_of(lambda one: one, LISTS["rows of 16 bytes"], 3)
    with pytest.raises((TypeError, ValueError), match=text):
        gram(**{"a": a, **given(a, c)})


def test_lists_on_a_cpu():
    a, c = lists_of(lambda one: one, LISTS["f32"], 3)
    with trigen.record() as seen:
        got = gram(a, c=c, beta=0.5)
    assert all(torch.equal(one, gram(two, c=three, beta=0.5)) for one, two, three in zip(got, a, c))
    assert len(seen.problems) == 1 and "H=3" in seen.problems[0] and "pointers=1" in seen.problems[0]


def test_what_a_cpu_records_is_what_the_device_was_asked(device, monkeypatch):
    a, c = inputs((2, 24, 40), torch.float16, torch.float16, tall=True)
    gram(device.put(a), c=device.put(c), fill="upper")
    monkeypatch.setattr(matrices, "on_gpu", lambda one: False)
    with trigen.record() as seen:
        gram(a, c=c, fill="upper")
        gram(a.double())
    assert seen.problems == [plans()[0].problem]


OVERLAPS = {
    "a": lambda s: dict(a=s[:8], out=s[:8]),
    "a's later rows": lambda s: dict(a=s[:8], out=s[4:12]),
    "b": lambda s: dict(a=s[:8], b=s[8:16], out=s[8:16]),
    "c's later rows": lambda s: dict(a=s[:8], c=s[8:16], out=s[12:20]),
}
APART = {
    "c itself": lambda s: dict(a=s[:8], c=s[8:16], out=s[8:16]),
    "slices of one buffer": lambda s: dict(a=s.view(3, 2, 4, 8)[:, 0, :, :4], out=s.view(3, 2, 4, 8)[:, 1, :, :4]),
    "columns of one buffer": lambda s: dict(a=s[:4, :4], out=s[:4, 4:]),
}


@pytest.mark.parametrize("where", ["a CPU", "kernels"])
def test_an_out_that_overlaps_is_refused(device, monkeypatch, where):
    if where == "a CPU":
        monkeypatch.setattr(matrices, "on_gpu", lambda one: False)
    for views in OVERLAPS.values():
        with pytest.raises(ValueError, match="overlaps"):
            gram(**views(device.put(torch.ones(24, 8).half())))
    for case, views in APART.items():
        given = views(device.put(torch.randn(24, 8).half()))
        want = exact(given["a"], given["a"], given.get("c"), 1, 1, 0).tril()  # c is not symmetric here
        assert gram(**given) is given["out"]
        assert (given["out"].double().tril() - want).norm() < 2e-3 * want.norm(), case


def test_an_out_whose_rows_are_not_contiguous_is_written(device):
    a = torch.randn(2, 8, 16).half()
    out = device.put(torch.zeros(2, 8, 8).half()).mT
    assert gram(device.put(a), out=out) is out
    torch.testing.assert_close(out, (a.float() @ a.float().mT).half(), rtol=2e-3, atol=2e-3)


def test_bad_input_is_refused_in_words():
    a = torch.zeros(4, 6)
    for message, call in {
        r"a has shape \[6\]; allowed": lambda: gram(a[0]),
        "D is square": lambda: gram(a, a[:3]),
        "fill='all' is not known": lambda: gram(a, fill="all"),
        r"c is torch.float32 \[4, 6\]": lambda: gram(a, c=a),
        "dtype=torch.float16 with torch.float32": lambda: gram(a, dtype=torch.float16),
        "no derivative": lambda: gram(a.clone().requires_grad_()),
        "alpha=0 leaves nothing to multiply": lambda: gram(a, alpha=0),
        "beta=2.0 without c; allowed: c, which it multiplies, or no beta": lambda: gram(a, beta=2.0),
        r"coefficients=\(1.5, -0.5, 0\); allowed: c other than 0": lambda: orthogonalize(
            a, coefficients=(1.5, -0.5, 0)
        ),
        r"coefficients=\(1, 2\)": lambda: orthogonalize(a, coefficients=(1, 2)),
        "steps=0": lambda: orthogonalize(a, steps=0),
        "form='fast' is not known; allowed: auto, classic, gram, one_launch": lambda: orthogonalize(a, form="fast"),
        "form='one_launch' with 257 rows or columns, 5 steps; allowed": lambda: orthogonalize(
            torch.zeros(300, 257), form="one_launch"
        ),
        "form='one_launch' with 4 rows or columns, 65 steps": lambda: orthogonalize(a, steps=65, form="one_launch"),
        "4 rows or columns, 5 steps in float64": lambda: orthogonalize(a.double(), form="one_launch"),
        "matrix 1 is": lambda: orthogonalize([a, a[0]]),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    for message, call in {
        r"a is a numpy.ndarray; allowed: a torch.Tensor": lambda: gram(a.numpy()),
        "a has dtype torch.int64; allowed: float16": lambda: gram(a.long()),
        r"give list\(matrices.values\(\)\)": lambda: orthogonalize({"weight": a}),
    }.items():
        with pytest.raises(TypeError, match=message):
            call()


def iterate(matrix, triples):
    """Newton-Schulz in double precision."""
    x = matrix.double()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm()
    for a, b, c in triples:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


def spectrum(rows, columns, smallest):
    torch.manual_seed(rows)
    u, _, v = torch.linalg.svd(torch.randn(rows, columns), full_matrices=False)
    return u @ torch.diag(torch.logspace(0, smallest, min(rows, columns))) @ v


@pytest.mark.parametrize("coefficients", [JORDAN, POLAR_EXPRESS])
@pytest.mark.parametrize("form", ["classic", "gram"])
def test_orthogonalize_is_closer_to_double_precision_than_bfloat16(coefficients, form):
    """Against the iterations in double precision, beside the usual ones in bfloat16."""
    matrices_ = [torch.randn(96, 384), spectrum(384, 96, -4), spectrum(80, 80, -2), torch.randn(2, 3, 16, 40)]
    triples = [coefficients] * 5 if coefficients is JORDAN else coefficients[:5]
    got = orthogonalize(matrices_, coefficients=coefficients, form=form)
    for one, result in zip(matrices_, got):
        assert result.shape == one.shape and result.dtype == one.dtype
        for matrix, ours in zip(one.reshape(-1, *one.shape[-2:]), result.reshape(-1, *one.shape[-2:])):
            want = iterate(matrix, triples)
            usual = _bfloat16(matrix, triples)
            error = (ours.double() - want).norm() / want.norm()
            of_usual = (usual.double() - want).norm() / want.norm()
            assert error < of_usual * (0.5 if form == "classic" else 1), (error, of_usual)


def _bfloat16(matrix, triples):
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm()
    for a, b, c in triples:
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


ONE_LAUNCH = {
    "a list": lambda: [torch.randn(24, 72), torch.randn(72, 24), torch.randn(24, 72)],
    "a list of one kind": lambda: [torch.randn(24, 72) for _ in range(3)],
    "parts of a batch": lambda: list(torch.randn(3, 24, 72).unbind()),
    "a tall list": lambda: [torch.randn(72, 24) for _ in range(3)],
    "tall parts of a batch": lambda: list(torch.randn(3, 72, 24).unbind()),
    "parts that begin at 4 bytes": lambda: list(torch.randn(3 * 24 * 72 + 1)[1:].reshape(3, 24, 72).unbind()),
    "a batch as it lies": lambda: [torch.randn(2, 3, 40, 136)],
    "a tall batch as it lies": lambda: [torch.randn(3, 136, 40)],
    "bf16, odd sides": lambda: [torch.randn(2, 33, 35).bfloat16(), torch.randn(35, 33).bfloat16()],
    "several dtypes": lambda: [torch.randn(16, 80).half(), torch.randn(16, 80).bfloat16()],
    "small singular values": lambda: [spectrum(80, 160, -5), spectrum(160, 80, -5)],
    "the norm of f16 is beyond it": lambda: [torch.randn(32, 96).half() * 1e4],
    "zeros": lambda: [torch.zeros(8, 24)],
}


@pytest.fixture()
def written(device, monkeypatch):
    """The device; what torch writes there counts as written."""
    zeros = device.put
    monkeypatch.setattr(launch, "empty", lambda size, dtype, device: zeros(torch.zeros(size, dtype=dtype)))
    monkeypatch.setattr(launch, "empty_like", lambda one: zeros(torch.zeros(one.shape, dtype=one.dtype)))
    return device


@pytest.mark.parametrize("coefficients", [JORDAN, POLAR_EXPRESS])
@pytest.mark.parametrize("case", ONE_LAUNCH)
def test_small_matrices_take_one_launch(written, case, coefficients):
    """Against double precision, beside the usual iterations in bfloat16; the same bits again, also in place."""
    device = written
    torch.manual_seed(1)
    matrices_ = ONE_LAUNCH[case]()
    given = [device.put(one) for one in matrices_]
    triples = [coefficients] * 5 if coefficients is JORDAN else coefficients[:5]
    with trigen.record() as seen:
        got = orthogonalize(given, coefficients=coefficients)
    assert len(seen.problems) == 1 and seen.problems[0].startswith("newton_schulz,"), seen.problems
    again = orthogonalize(given, coefficients=coefficients, out=given)
    for one, result, second in zip(matrices_, got, again):
        assert result.shape == one.shape and result.dtype == one.dtype and torch.equal(result, second)
        for matrix, ours in zip(one.reshape(-1, *one.shape[-2:]), result.reshape(-1, *one.shape[-2:])):
            want = iterate(matrix, triples) if matrix.any() else matrix.double()
            error = (ours.double() - want).norm()
            usual = (_bfloat16(matrix, triples).double() - want).norm() if matrix.any() else 0
            assert error <= usual, (error / want.norm(), usual / want.norm())


def test_x_is_divided_by_its_norm_whatever_eps_is(written):
    """newton_schulz itself leaves x undivided where its eps is below 0."""
    x = written.put(torch.randn(24, 72))
    with trigen.record() as seen:
        assert torch.equal(orthogonalize(x, eps=-1.0), orthogonalize(x))
    assert [problem.split(",")[0] for problem in seen.problems] == ["newton_schulz"]


@pytest.mark.parametrize("shape", [(24, 72), (72, 24)])
def test_parts_of_one_tensor_are_read_and_written_as_they_lie(written, moved, shape):
    whole = written.put(torch.randn(5, *shape))
    wanted = orthogonalize(whole)
    for given in (list(whole.unbind()), list(whole.unbind())[::2]):
        for one, result in zip(given, orthogonalize(given)):
            assert torch.equal(result, wanted[(one.data_ptr() - whole.data_ptr()) // (4 * one.numel())])
    assert moved == []
    first, last = orthogonalize([whole[0], whole[1:]])  # results of two kinds are not one tensor
    assert [*moved[0]] == [first.data_ptr(), *(one.data_ptr() for one in last)] and len(moved) == 1
    assert torch.equal(first, wanted[0]) and torch.equal(last, wanted[1:])
    first, last = orthogonalize([whole[0], whole[1]])
    assert last.data_ptr() - first.data_ptr() == 4 * first.numel()


def rows_apart(put, shape, dtype, shift):
    """A matrix `shift` elements behind its memory's start, NaN between its rows."""
    wide = torch.full((shape[0], shape[1] + 24), float("nan"), dtype=dtype)
    wide[:, shift : shift + shape[1]] = torch.randn(shape).to(dtype)
    return put(wide)[:, shift : shift + shape[1]]


ANYWHERE = {
    "rows one behind the other": lambda put: put(torch.randn(24, 72)),
    "NaN between rows": lambda put: rows_apart(put, (24, 72), torch.float32, 8),
    "tall": lambda put: rows_apart(put, (96, 40), torch.bfloat16, 0),
    "an element's alignment": lambda put: rows_apart(put, (33, 35), torch.float16, 3),
    "two in a tensor": lambda put: put(torch.randn(2, 16, 20)),
}


@pytest.mark.parametrize("case", ANYWHERE)
@pytest.mark.parametrize("to", ["new", "out"])
def test_matrices_that_lie_anywhere_are_not_copied(written, moved, case, to):
    """The bits are those of one batch; results may lie anywhere, too."""
    torch.manual_seed(2)
    given = [ANYWHERE[case](written.put) for _ in range(5)]
    wanted = orthogonalize(written.put(torch.stack(given)))
    assert moved == []
    out = None if to == "new" else [ANYWHERE[case](written.put) for _ in given]
    with trigen.record() as seen:
        got = orthogonalize(given, out=out)
    for result, one in zip(got, wanted):
        assert torch.equal(result, one)
    flat = [one for view in given for one in view.reshape(-1, *view.shape[-2:]).unbind()]
    assert len(moved) == 1 and moved[0][: len(flat)] == [
        one.data_ptr() for view in given for one in (view.unbind() if view.dim() > 2 else [view])
    ]
    assert len(seen.problems) == 1 and "align" not in seen.problems[0]
    assert out is None or all(one is two for one, two in zip(got, out))


def test_matrices_that_are_overwritten_before_they_are_read_are_copied(written, moved):
    torch.manual_seed(2)
    matrices_ = [torch.randn(24, 72) for _ in range(3)]
    given = [written.put(one) for one in matrices_]
    wanted = orthogonalize(given)
    results = orthogonalize(given, out=given[1:] + given[:1])
    assert moved[-1] == "copies" and all(torch.equal(one, two) for one, two in zip(results, wanted))
    given = [written.put(one) for one in matrices_]
    memory = written.put(torch.zeros(3 * 24 * 72))
    out = [memory[at : at + 24 * 72].view(24, 72) for at in (0, 4, 2 * 24 * 72)]  # the second reaches into the first
    results = orthogonalize(given, out=out)
    assert moved[-1] == "copies" and torch.equal(results[1], wanted[1]) and torch.equal(results[2], wanted[2])


def test_matrices_and_results_may_be_parts_of_one_tensor_in_turn(written, moved, monkeypatch):
    """Given by strides, both reach over each other."""
    torch.manual_seed(2)
    kept = torch.randn(4, 24, 72)
    for capturing in (False, True):
        whole = written.put(kept.clone())
        wanted = orthogonalize([whole[0], whole[3]])
        monkeypatch.setattr(launch, "is_capturing", lambda capturing=capturing: capturing)
        for one, two in zip(orthogonalize([whole[0], whole[3]], out=[whole[1], whole[2]]), wanted):
            assert torch.equal(one, two)
        assert torch.equal(whole[0], kept[0]) and torch.equal(whole[3], kept[3])
        assert moved[-1] == "copies" if capturing else isinstance(moved[-1], list)
        monkeypatch.setattr(launch, "is_capturing", lambda: False)


def test_a_capture_copies_what_lies_anywhere(written, moved, monkeypatch):
    """A graph would read the pointers from host memory that is given back. A call before the capture makes what one within needs."""
    torch.manual_seed(2)
    given = [written.put(torch.randn(24, 72)) for _ in range(3)]
    wanted = orthogonalize(given)
    assert moved == [[one.data_ptr() for one in given]]
    monkeypatch.setattr(launch, "is_capturing", lambda: True)
    assert all(torch.equal(one, two) for one, two in zip(orthogonalize(given), wanted))
    assert moved[1:] == ["cat"]
    orthogonalize(given, out=[written.put(torch.zeros(24, 72)) for _ in range(3)])
    assert moved[2:] == ["cat", "copies"]


@pytest.mark.parametrize(
    "n, m, k, clusters, hopper, is_one",
    [
        (4, 64, 4096, False, False, True),
        (4, 128, 1024, False, False, True),
        (4, 128, 2048, False, False, False),
        (64, 128, 2048, False, False, True),
        (64, 129, 256, False, False, False),
        (7, 128, 4096, True, False, True),
        (7, 64, 4097, True, True, False),
        (8, 128, 4097, True, False, True),
        (64, 129, 256, True, False, False),
        (64, 129, 256, True, True, True),
        (64, 257, 512, True, True, False),
    ],
)
def test_few_matrices_with_many_columns_are_products_one_by_one(n, m, k, clusters, hopper, is_one, monkeypatch):
    monkeypatch.setattr(muon, "_clusters_and_hopper", lambda device: (clusters, hopper))
    meta = torch.empty(n, m, k, device="meta")

    def size(steps, form):
        return muon._size_of(m, k, False, [(meta, meta)], steps, form)

    assert size(5, "auto") == (n, m, k, "btd", torch.float32 if is_one else None)
    assert size(5, "gram") == size(65, "auto") == (n, m, k, "btd", None)
    assert m > 256 or size(5, "one_launch").dtype


def test_orthogonalize_keeps_its_input_and_writes_where_it_is_told():
    one, two = torch.randn(24, 40), torch.randn(40, 24)
    kept = one.clone()
    first, second = orthogonalize([one, two])
    assert torch.equal(one, kept)
    torch.testing.assert_close(first, orthogonalize(one))  # a batch changes no element's sum
    out = [torch.empty_like(one), two]
    assert orthogonalize([one, two], out=out)[1] is two
    assert torch.equal(out[0], first) and torch.equal(two, second)
    assert orthogonalize([]) == []
    double = orthogonalize(one.double())
    torch.testing.assert_close(double, iterate(kept, [JORDAN] * 5))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="[SKIP] this PyTorch has no torch.optim.Muon")
@pytest.mark.parametrize("rule", [None, "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_steps_as_pytorchs_does(rule, nesterov):
    def train(optimizer, steps=6):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(24, 48, bias=False), torch.nn.GELU(), torch.nn.Linear(48, 24, bias=False)
        )
        x = torch.randn(64, 24)
        muon = optimizer(model.parameters(), lr=0.02, nesterov=nesterov, adjust_lr_fn=rule)
        losses = []
        for _ in range(steps):
            loss = (model(x) - x).square().mean()
            muon.zero_grad()
            loss.backward()
            muon.step()
            losses.append(float(loss.detach()))
        return losses, muon.state_dict()

    (ours, state), (theirs, other) = train(Muon), train(torch.optim.Muon)
    assert ours == pytest.approx(theirs, rel=1e-2) and ours[-1] < ours[0]
    assert state["param_groups"] == other["param_groups"] and state["state"].keys() == other["state"].keys()
    fresh = Muon([torch.nn.Parameter(torch.zeros(48, 24)), torch.nn.Parameter(torch.zeros(24, 48))])
    fresh.load_state_dict(other)


def test_matrices_of_8_bits_are_calculated_in_float32():
    torch.manual_seed(0)
    for shape in ((16, 24), (150, 160)):
        small = torch.randn(shape).to(torch.float8_e4m3fn)
        for given in ([small], [small, small], [small, small.to(torch.bfloat16)]):
            for one in orthogonalize(given)[:1]:
                assert one.dtype is torch.float8_e4m3fn
                torch.testing.assert_close(one.float(), orthogonalize(small.float()), atol=0.02, rtol=0.07)


def test_one_call_takes_matrices_of_several_dtypes():
    torch.manual_seed(0)
    matrices = [torch.randn(16, 32, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    for given in (matrices, matrices[::-1]):
        for one, together in zip(given, orthogonalize(given)):
            assert torch.equal(orthogonalize(one), together)


SIZES = [(2, 24, 24), (1, 16, 40), (3, 24, 56), (1, 130, 140)]  # n, m, k


@pytest.mark.parametrize("form", ["auto", "classic", "gram"])
@pytest.mark.parametrize("steps", [1, 4, 5])
@pytest.mark.parametrize("tall", [False, True])
def test_the_problems_of_an_orthogonalisation_are_known_before_it_runs(form, steps, tall):
    given = [torch.randn(*((k, m) if tall else (m, k))) for n, m, k in SIZES for _ in range(n)]
    with trigen.record() as seen:
        orthogonalize(given, steps=steps, form=form)
    sizes = [
        muon.Size(n, m, k, "bdt" if tall and m < k else "btd", torch.float32 if form == "auto" and m <= 128 else None)
        for n, m, k in SIZES
    ]
    assert list(dict.fromkeys(muon.problems_of(sizes, steps, form))) == seen.problems


def test_an_orthogonalisation_makes_its_plans_side_by_side(device, library, monkeypatch):
    """Two threads are in the library's plan creation at once; the kernels that run afterwards are compiled already, and asked for once."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    both = threading.Barrier(2, timeout=60)
    waited, made = iter([True, True]), []
    create = library.Runtime.plan

    def plan(runtime, problem, device):
        if next(waited, False):
            both.wait()
        made.append(problem)
        return create(runtime, problem, device)

    monkeypatch.setattr(library.Runtime, "plan", plan)
    sizes = [*(muon.Size(*size, "btd") for size in SIZES[:3]), muon.Size(2, 24, 56, "btd", torch.float32)]
    muon._make_plans(sizes, 5, "auto", 0)
    wanted = set(muon.problems_of(sizes, 5, "auto"))
    assert len(made) == len(wanted) == 9 and set(made) == wanted and plans() == []
    before = library.counters()
    muon._make_plans(sizes, 5, "auto", 0)
    assert len(made) == 9
    x = gram(device.put(torch.randn(3, 24, 56).half()))
    gram(x, c=x, alpha=0.25, beta=0.5)
    assert set(info.problem for info in plans()) <= wanted and library.counters().compiles == before.compiles
    trigen.torch.forget_plans()
    assert muon._planned == set()


def test_orthogonalize_makes_the_plans_of_the_groups_that_kernels_serve(monkeypatch):
    asked = []
    monkeypatch.setattr(matrices, "on_gpu", lambda one: True)
    monkeypatch.setattr(
        matrices,
        "_run",
        lambda a, b, c, alpha, beta, gamma, fill, _, out: matrices._plain(a, b, c, alpha, beta, gamma, fill, out),
    )
    monkeypatch.setattr(muon, "_make_plans", lambda *given: asked.append(given))
    orthogonalize([torch.randn(16, 40), torch.randn(8, 8).double(), torch.randn(40, 16)], steps=3, form="gram")
    assert asked == [([(2, 16, 40, "btd", None)], 3, "gram", -1)]


def test_plans_that_cannot_be_made_ahead_are_left_to_the_call(device, library, monkeypatch):
    def refused(*_):
        raise trigen.BuildError("no")

    monkeypatch.setattr(library.Runtime, "plan", refused)
    launch.make_ahead(["gram,one", "gram,two"], 0)
    with pytest.raises(trigen.BuildError, match="no"):
        gram(device.put(torch.zeros(8, 8).half()))


def test_the_coefficients_and_the_forms_of_cpp_are_pythons(repository):
    from trigen import newton_schulz

    text = (repository / "runtime/include/trigen/newton_schulz.hpp").read_text()

    def numbers(after):
        return [float(one) for one in re.findall(r"-?\d+\.?\d*", re.search(after + r"([^;]*);", text)[1])]

    assert numbers("kJordan = ") == [float(f"{one:.4f}") for one in JORDAN]  # float's suffix aside
    steps = numbers(r"kSteps\[\]\[3\] = ")
    safe = [one / 1.01**power for one, power in zip(steps, [1, 3, 5] * 7)]
    assert safe == pytest.approx([one for triple in POLAR_EXPRESS[:-1] for one in triple])
    assert numbers(r"step >= 7\) \{\s*made.push_back") == list(POLAR_EXPRESS[-1])
    assert numbers("kRestart = ") == [newton_schulz.RESTART]
    assert numbers(r"kAuto\) form_ = ") == [4, 5] and newton_schulz._GRAM_FROM == 5 / 4


ONE_LAUNCH_RULE = """
#include <trigen/newton_schulz.hpp>

#include <cstdio>

int main() {
  using trigen::NewtonSchulz;
  long n, m, k, steps;
  int clusters, hopper;
  while (std::scanf("%ld %ld %ld %ld %d %d", &n, &m, &k, &steps, &clusters, &hopper) == 6)
    std::puts(NewtonSchulz::fits_one_launch(m, steps) && NewtonSchulz::suits_one_launch(n, m, k, clusters, hopper) ? "1" : "0");
}
"""


def test_cpp_and_python_take_one_launch_of_the_same_sizes(repository, tmp_path):
    from trigen import newton_schulz

    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("[SKIP] no C++ compiler")
    source, program = tmp_path / "rule.cpp", tmp_path / "rule"
    source.write_text(ONE_LAUNCH_RULE)
    include = repository / "runtime/include"
    subprocess.run([compiler, "-std=c++17", f"-I{include}", "-o", program, source], check=True)
    grid = [
        (n, m, k, steps, clusters, hopper)
        for n in (1, 2, 7, 8, 9, 15, 16, 32, 63, 64, 65, 128, 4096)
        for m in (1, 32, 63, 64, 65, 96, 127, 128, 129, 256, 257)
        for k in sorted({m, 1000, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 1 << 16})
        if k >= m
        for steps in (1, 5, 63, 64, 65)
        for clusters, hopper in ((0, 0), (1, 0), (1, 1))
    ]
    given = "\n".join(" ".join(map(str, one)) for one in grid)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    ours = [
        newton_schulz.may_be_one_launch(m, steps, "auto", False)
        and newton_schulz.suits_one_launch(n, m, k, bool(clusters), bool(hopper))
        for n, m, k, steps, clusters, hopper in grid
    ]
    assert [bool(int(line)) for line in done.stdout.split()] == ours
