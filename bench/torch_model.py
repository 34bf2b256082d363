"""Part `model` of torch_ops.py: training steps of a masked mixer language model, end to end."""

import copy
import gc
import importlib.util
import statistics
import time
from pathlib import Path

import torch
import trigen.torch as tt
from timing import training_steps
from torch_step import PRECISIONS

ROOT = Path(__file__).resolve().parents[1]


class NoMixing(torch.nn.Module):
    """Stands where the mixer stands, and does nothing: what is left of a step is what the mixers do not cost."""

    def forward(self, x):
        return x


def load_file(path):
    """The module of a file of Python."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_example():
    return load_file(ROOT / "examples/python/train_mixer.py")


def texts(batch, tokens, device, seed=1):
    """Batches [batch, tokens] of the bytes of docs/, from random places, without end."""
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").rglob("*.md")))
    text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    source = torch.Generator().manual_seed(seed)
    while True:
        begins = torch.randint(len(text) - tokens + 1, (batch,), generator=source).tolist()
        yield torch.stack([text[begin : begin + tokens] for begin in begins]).long().to(device)


def prepare(arm, model, tokens, compile_what):
    """The model of an arm and the function to call. Compiled by blocks: equal blocks share one compiled function, a sixteenth of the wait."""
    if "trigen" in arm:
        tt.convert(model, tokens=tokens, select=lambda name, _: name.endswith("mixer"))
    if "no mixing" in arm:
        for block in model.blocks:
            block.mixer = NoMixing()
    if "compiled" not in arm:
        return model
    torch._dynamo.reset()
    if compile_what == "model":
        return torch.compile(model, dynamic=False)
    for block in model.blocks:
        block.compile(dynamic=False)
    return model


def bench_model(
    report, shape, layers, precision, device, compiled=True, compile_what="blocks", warm=3, steps=10, vocabulary=8192
):
    """One line an arm: milliseconds a step (forward, backward, AdamW), tokens/s, peak memory, and what the token mixing costs of it: the
    difference to the same model without mixers (so with AdamW's update of their weights, which is alike in all arms)."""
    B, T, D = shape[:3]
    autocast, _, matmul = PRECISIONS[precision]
    torch.set_float32_matmul_precision(matmul)
    example = load_example()
    torch.manual_seed(0)
    original = example.MaskedMixer(vocabulary, T, D, layers)
    tokens = torch.randint(vocabulary, (B, T + 1), device=device)
    kinds = ("", "compiled ") if compiled else ("",)
    milliseconds, losses_of = {}, {}
    for kind in kinds:
        for name in ("no mixing", "plain", "trigen"):
            arm = kind + name
            before = torch.cuda.memory_allocated() if device == "cuda" else 0
            model = copy.deepcopy(original).to(device)
            began = time.perf_counter()
            run = prepare(arm, model, T, compile_what)
            optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
            if device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            losses, _ = training_steps(run, optimiser, tokens, autocast, device, warm, 0)
            first = time.perf_counter() - began
            more, seconds = training_steps(run, optimiser, tokens, autocast, device, 0, steps)
            losses += more
            milliseconds[arm] = step_ms = 1e3 * statistics.median(seconds)
            losses_of[arm] = [float(value) for value in losses]
            line = dict(
                part="model",
                arm=arm,
                shape=f"B={B} T={T} D={D} layers={layers} vocabulary={vocabulary}",
                precision=precision,
                step_ms=round(step_ms, 3),
                tokens_per_s=round(1e3 * B * T / step_ms),
                first_steps_s=round(first, 2),
                compiled=compile_what if kind else None,
            )
            if device == "cuda":
                line["peak_GiB"] = round((torch.cuda.max_memory_allocated() - before) / 2**30, 3)
            if name != "no mixing":
                mixing = step_ms - milliseconds[kind + "no mixing"]
                line.update(
                    mixing_ms=round(mixing, 3),
                    mixing_share=round(mixing / step_ms, 3),
                    first_loss=round(losses_of[arm][0], 4),
                    last_loss=round(losses_of[arm][-1], 4),
                )
            if name == "trigen":
                parts = max(abs(a - b) / abs(b) for a, b in zip(losses_of[arm], losses_of[kind + "plain"]))
                line.update(
                    parts_from_plain=float(f"{parts:.2g}"),
                    plain_step_over_trigen=round(milliseconds[kind + "plain"] / step_ms, 3),
                )
                base = milliseconds[kind + "plain"] - milliseconds[kind + "no mixing"]
                line.update(plain_mixing_over_trigen=round(base / mixing, 3) if mixing > 0 else None)
            report.add(**line)
            del model, run, optimiser, losses, more
            torch._dynamo.reset()  # what was compiled holds the model that it was compiled for
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
