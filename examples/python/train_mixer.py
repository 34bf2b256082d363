"""Trains a small masked mixer language model twice, in plain PyTorch and with trigen, from the same weights on the same batches, and
checks that the losses agree step by step. Prints tokens/s of both (and of both under torch.compile where asked); writes two pictures.

    python examples/python/train_mixer.py                          # CPU or GPU, whatever is here; a minute
    python examples/python/train_mixer.py --tokens 512 --features 1024 --layers 8 --batch 32      # a GPU
    python examples/python/train_mixer.py --out pictures           # pictures/loss.png, pictures/step_time.png

The text is made by this script: sentences of a small grammar, one character a token. Exit status 1 when the losses part.
"""

import argparse
import copy
import json
import random
import sys
import time
from pathlib import Path

import torch
import trigen
import trigen.torch
from torch import nn


class MaskedConv1d(nn.Conv1d):
    """The plain mixer: the dense convolution over a weight that is masked in the graph."""

    def forward(self, x):
        weight = torch.tril(self.weight.squeeze(-1)).unsqueeze(-1)
        return nn.functional.conv1d(x, weight, self.bias)


class Block(nn.Module):
    def __init__(self, tokens, features):
        super().__init__()
        self.mixer_norm, self.feed_norm = nn.LayerNorm(features), nn.LayerNorm(features)
        self.mixer = MaskedConv1d(tokens, tokens, 1)
        self.feed = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features))

    def forward(self, x):
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.feed(self.feed_norm(x))


class MaskedMixer(nn.Module):
    """Embedding, mixer blocks, head. forward(tokens[B, T+1]) is the loss of predicting each next token."""

    def __init__(self, vocabulary, tokens, features, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.blocks = nn.ModuleList([Block(tokens, features) for _ in range(layers)])
        self.head = nn.Linear(features, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens[:, 1:].flatten())


def make_text(characters: int, seed: int) -> str:
    """Sentences with agreement between subject and verb, so that there is something to learn beyond letter counts."""
    choose = random.Random(seed)
    subjects = [
        ("the cat", "sleeps"),
        ("the dogs", "sleep"),
        ("a kernel", "runs"),
        ("two warps", "run"),
        ("the scheduler", "waits"),
    ]
    places = ["on the mat", "in the tile", "under the roof", "near the cache", "beside the road"]
    parts, size = [], 0
    while size < characters:
        subject, verb = choose.choice(subjects)
        sentence = f"{subject} {verb} {choose.choice(places)} {'and ' + choose.choice(places) if choose.random() < 0.5 else 'again'}. "
        parts.append(sentence)
        size += len(sentence)
    return "".join(parts)[:characters]


def make_batches(text: str, steps: int, batch: int, tokens: int, seed: int):
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text])
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(data) - tokens, (steps, batch), generator=generator)
    return len(letters), [torch.stack([data[s : s + tokens + 1] for s in row.tolist()]) for row in starts]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(model, batches, dtype, device, rate):
    """(losses, seconds a step without the first tenth, peak bytes)."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    losses, warm = [], max(1, len(batches) // 10)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for step, tokens in enumerate(batches):
        if step == warm:
            synchronize(device)
            began = time.perf_counter()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss = model(tokens)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    synchronize(device)
    seconds = (time.perf_counter() - began) / (len(batches) - warm)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return torch.stack(losses).cpu().tolist(), seconds, peak


def draw(folder: Path, losses, seconds, what: str):
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, height_ratios=(3, 1))
    for (name, values), style in zip(losses.items(), ("-", "--", ":", "-.")):
        top.plot(values, style, label=name)
    top.set_ylabel("loss (nats per character)")
    top.set_title(what)
    top.legend()
    first, *others = losses
    for name in others:
        bottom.plot([abs(a - b) for a, b in zip(losses[first], losses[name])], label=f"|{name} - {first}|")
    bottom.set_yscale("log")
    bottom.set_xlabel("step")
    bottom.set_ylabel("difference")
    figure.tight_layout()
    figure.savefig(folder / "loss.png", dpi=120)
    figure, axes = plt.subplots(figsize=(6, 4))
    bars = axes.bar(
        list(seconds),
        [1e3 * value for value in seconds.values()],
        color=["#888888", "#4477aa", "#bbbbbb", "#66ccee"][: len(seconds)],
    )
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylabel("milliseconds a training step")
    axes.set_title(what)
    figure.tight_layout()
    figure.savefig(folder / "step_time.png", dpi=120)
    print(f"pictures: {folder / 'loss.png'} {folder / 'step_time.png'}")


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="autocast dtype (default: bfloat16 on a GPU)"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of AdamW")
    parser.add_argument(
        "--tolerance", type=float, help="relative difference of losses that is allowed (default by dtype)"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also train both models under torch.compile (default: on a GPU)",
    )
    parser.add_argument("--out", type=Path, help="folder for pictures")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    dtype = getattr(torch, options.dtype or ("bfloat16" if device.type == "cuda" else "float32"))
    # One rounding of y is 2^-8 (bf16) or 2^-11 (f16) of it; AdamW's first steps are the size of the rate whatever the gradient is,
    # so roundings do not average out, and the curves part by a small multiple of that.
    tolerance = options.tolerance or {torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2}[dtype]
    torch.manual_seed(0)
    vocabulary, batches = make_batches(make_text(100_000, 1), options.steps, options.batch, options.tokens, 2)
    batches = [tokens.to(device) for tokens in batches]
    plain = MaskedMixer(vocabulary, options.tokens, options.features, options.layers).to(device)
    models = {"plain": plain, "trigen": copy.deepcopy(plain)}
    report = trigen.torch.convert(
        models["trigen"],
        tokens=options.tokens,
        select=lambda name, _: name.endswith("mixer"),
        example_inputs=(batches[0],),
    )
    assert len(report.converted) == options.layers, str(report)
    if options.compile or (options.compile is None and device.type == "cuda"):
        models["plain compiled"] = torch.compile(copy.deepcopy(plain))
        models["trigen compiled"] = torch.compile(copy.deepcopy(models["trigen"]))

    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    if not options.json:
        print(
            f"{where}, {dtype}, T={options.tokens} D={options.features}, {options.layers} layers, B={options.batch}, {options.steps} steps",
            flush=True,
        )
    losses, seconds, memory = {}, {}, {}
    tokens = options.batch * options.tokens
    for name, model in models.items():
        losses[name], seconds[name], memory[name] = train(model, batches, dtype, device, options.rate)
        if not options.json:
            print(
                f"  {name:15} {1e3 * seconds[name]:8.2f} ms/step   {tokens / seconds[name]:12,.0f} tokens/s", flush=True
            )
    worst = {name: max(abs(a - b) / abs(b) for a, b in zip(values, losses["plain"])) for name, values in losses.items()}
    parts = max(value for name, value in worst.items() if name.startswith("trigen"))
    agrees = parts <= tolerance
    learns = losses["trigen"][-1] < 0.7 * losses["trigen"][0]
    result = {
        "device": where,
        "dtype": str(dtype),
        "tokens": options.tokens,
        "features": options.features,
        "layers": options.layers,
        "batch": options.batch,
        "steps": options.steps,
        "tolerance": tolerance,
        "agrees": agrees,
        "arms": {
            name: {
                "first_loss": losses[name][0],
                "last_loss": losses[name][-1],
                "worst_relative_difference": worst[name],
                "step_ms": 1e3 * seconds[name],
                "tokens_per_s": tokens / seconds[name],
                "peak_bytes": memory[name],
            }
            for name in models
        },
    }
    if options.json:
        print(json.dumps(result))
    else:
        for name, arm in result["arms"].items():
            print(
                f"  {name:15} loss {arm['first_loss']:.4f} -> {arm['last_loss']:.4f}   {arm['peak_bytes'] / 2**20:8.0f} MiB   "
                f"parts from plain by {arm['worst_relative_difference']:.1e}"
            )
    if options.out:
        draw(
            options.out,
            losses,
            seconds,
            f"masked mixer, T={options.tokens} D={options.features} x{options.layers}, {where}, {dtype}".replace(
                "torch.", ""
            ),
        )
    if not agrees:
        print(f"the losses part by {parts:.2g} (relative); allowed: {tolerance:.2g}", file=sys.stderr)
    if not learns:
        print("the model did not learn: the last loss is above 0.7 of the first", file=sys.stderr)
    return 0 if agrees and learns else 1


if __name__ == "__main__":
    sys.exit(main())
