"""The benchmark scripts at tiny sizes on a CPU: every arm runs, agrees with the others, and is reported. No figure of theirs is checked."""

import json
import subprocess
import sys

import pytest
from trigen import library

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")


def lines(repository, script, *arguments):
    done = subprocess.run(
        [sys.executable, repository / "bench" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(repository / "python"), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


PEERS = {  # of a step of such a shape
    "2,16,8": {
        "masked conv1d (weight.data)",
        "masked conv1d (tril in the graph)",
        "tril + matmul",
        "three products by hand, W masked once",
        "three products by hand, dW a batch each",
    },
    "2,12,8,4": {"masked conv1d (weight.data)", "masked conv1d (tril in the graph)", "unfold + matmul"},
    "2,12,8,1,2": {"loop of matmul", "einsum"},
    "2,12,8,3,2": {"loop of conv1d"},
}


@pytest.fixture(scope="module")
def steps(repository):
    """Lines of all shapes and precisions, by one process."""
    given = "--device cpu --parts step --no-compiled --rounds 1 --precision bfloat16,f32 --shapes"
    found = lines(repository, "torch_ops.py", *given.split(), ";".join(PEERS))
    assert len(found) == 2 * len(PEERS)
    return {shape: found[i :: len(PEERS)] for i, shape in enumerate(PEERS)}


@pytest.mark.parametrize("shape", PEERS)
def test_step_of_every_kind(steps, shape):
    others = {
        "bfloat16": set(),
        "f32": {f"trigen {math}" for math in library.MATHS if math not in ("default", "simt", "tf32")},
    }
    for line, precision in zip(steps[shape], ("bfloat16", "f32")):
        assert (
            line["precision"] == precision
            and set(line["arms"]) == PEERS[shape] | {"trigen"} | others[precision]
            and "refused" not in line
        )
        for arm in line["arms"].values():
            assert arm["difference"] < 2e-2 and {"eager", "eager_inline", "eager_chain"} < set(arm)
        assert len(line["floors"]) == 2 and all(
            set(floor) == {"eager", "eager_inline"} for floor in line["floors"].values()
        )
        assert set(line["best_other_over_trigen"]) == {"eager", "eager_inline", "eager_chain"}


def test_models_agree_and_show_what_mixing_costs(repository):
    given = (
        "--device",
        "cpu",
        "--parts",
        "model",
        "--no-compiled",
        "--shapes",
        "2,16,8",
        "--layers",
        "2",
        "--steps",
        "2",
        "--precision",
        "f32",
    )
    bare, plain, trigen = lines(repository, "torch_ops.py", *given)
    assert [line["arm"] for line in (bare, plain, trigen)] == ["no mixing", "plain", "trigen"]
    assert trigen["parts_from_plain"] < 1e-4 and "mixing_share" in plain and trigen["tokens_per_s"] > 0


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch 2.9 has the optimizer that is compared with")
def test_gram(repository):
    given = (
        "--device cpu --parts orthogonalize,train --matrices 48x32,32x32 --shape 2,16,8 --layers 1 --steps 2 --rounds 1"
    )
    orthogonal, *_, apart = lines(repository, "gram.py", *given.split())
    assert orthogonal["relative_error"]["trigen"] <= orthogonal["relative_error"]["torch"] < 0.05
    assert apart["losses_apart"] < 0.01


def test_scan(repository):
    given = "--device cpu --problems 2,16,8,2 --rounds 1 --calls 1 --no-compiled --layout"
    for layout in ("btd", "bdt"):
        parts = lines(repository, "scan.py", *given.split(), layout)
        assert [line["part"] for line in parts] == ["forward", "backward", "step"]
        for line in parts:
            assert set(line["us"]) == {"scan", "scan, module", "matrix", "dense", "copy"} and line["apart"] < 0.01


SOMEBODY = """
import torch

class Repeat(torch.nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1, tokens) / tokens**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(tokens))

    def forward(self, x):  # [batch, features, tokens]
        return x @ self.weight.T.expand(-1, x.shape[-1]).triu() + self.bias

class Model(torch.nn.Module):
    def __init__(self, vocabulary, features, tokens):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, features)
        self.mixer = Repeat(tokens)
        self.head = torch.nn.Linear(features, vocabulary)

    def forward(self, input_ids, labels):
        logits = self.head(self.mixer(self.embedding(input_ids).mT).mT)
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits
"""


def test_a_model_of_somebody_else_is_converted(repository, tmp_path):
    source = tmp_path / "somebody.py"
    source.write_text(SOMEBODY)
    given = "--tokens 24 --batch 2 --steps 3 --warm 1 --lr 1e-2 --precision f32 --device cpu --model".split()
    plain, trigen = lines(repository, "converted.py", str(source), *given, "Model(256, 8, 24)")
    assert (plain["arm"], trigen["arm"]) == ("plain", "trigen")
    assert trigen["converted"] == 1 and trigen["apart"] < 1e-4
    assert plain["first_loss"] != plain["last_loss"] and trigen["tokens_per_s"] > 0


def test_gram_of_unseen_problems(repository):
    """Drawn from a seed within their bounds, both dtypes in turn; a line a problem, and one that sums them up."""
    given = "--device cpu --parts product --unseen 2 --seed 7 --most 1e5 --rounds 1 --seconds 0.1"
    one, two, sums = lines(repository, "gram.py", *given.split())
    assert (one["dtype"], two["dtype"]) == ("bfloat16", "float16") and max(one["apart"], two["apart"]) < 1e-2
    assert set(one["us"]) == {"matmul", "compiled", "trigen"}
    assert (sums["problems"], sums["failed"], sums["seed"]) == (2, 0, 7)
    assert sums["worst"] == min(one["ratio"], two["ratio"])
    sys.path.insert(0, str(repository / "bench"))
    try:
        import gram
    finally:
        sys.path.pop(0)
    drawn = gram.draw(200, 3)
    assert drawn[:50] == gram.draw(50, 3) != gram.draw(50, 4)
    for m, k, batch, _ in drawn:
        assert 64 <= m <= 4096 and 64 <= k <= 8192 and 1 <= batch <= 64 and 2 * batch * m * (k + m) <= 2e9
    assert max(m for m, *_ in drawn) > 3000 and max(batch for *_, batch, _ in drawn) > 50
    assert gram.summary([3.0, 0.5, 1.0, 2.0]) == {
        "not_slower": 0.75,
        "mean_cut_at_2": 1.189,
        "tenth_percentile": 0.65,
        "worst": 0.5,
    }


def test_host_cost(repository):
    (best,) = lines(repository, "host_cost.py", "--calls", "20", "--rounds", "1", "--json")
    assert best["host_us"]["step"] > best["host_us"]["no gradients"] > 0


def test_bad_shapes_are_refused(repository):
    done = subprocess.run(
        [sys.executable, repository / "bench/torch_ops.py", "--device", "cpu", "--shapes", "2,16"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(repository / "python")},
    )
    assert done.returncode == 2 and "shape '2,16'; allowed: B,T,D" in done.stderr
