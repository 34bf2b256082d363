"""A language model out of somebody else's file, trained as it is and after one call of trigen.torch.convert: losses and tokens/s, eager and
compiled, from the same weights on the same bytes of text. Prints one JSON object a line.

    python bench/converted.py repeat_main.py --model "MLPMixer(256, 1024, 1024, 16, heads=4, mixed_heads=True, decay=True)" --tokens 1024
    python bench/converted.py model.py --model "Mixer(256, 64)" --tokens 128 --batch 4 --steps 20 --device cpu    # no figures

The file is run as a module of Python (its `if __name__ == "__main__"` is not) and needs what it imports. `--model` is an expression with its names: a model
of a vocabulary of 256 or more. `--loss` is one of a step, with `model`, `ids` [batch, tokens] and that file's names; the default is what models
with transformers' interface return first. tokens/s and ms are medians of a step (forward, backward, AdamW) behind the first `--warm`.
"""

import argparse
import copy
import statistics
from pathlib import Path

import torch
import trigen.torch as tt
from timing import Report, training_steps
from torch_model import load_file, texts
from torch_step import PRECISIONS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the file with the model")
    parser.add_argument("--model", required=True, help='such as "Mixer(256, 512)"')
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--loss", default="model(input_ids=ids, labels=ids)[0]")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--precision", default="bfloat16", choices=sorted(PRECISIONS))
    modes = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    parser.add_argument(
        "--compile", nargs="+", choices=modes, default=[], help="with arms under torch.compile, of these modes"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out")
    options = parser.parse_args()
    if min(options.tokens, options.batch, options.warm + 1) < 1 or options.steps <= options.warm:
        parser.error("--tokens and --batch are 1 or more, --steps more than --warm")
    if not options.source.is_file():
        parser.error(f"{options.source} is no file")
    autocast, _, matmul = PRECISIONS[options.precision]
    torch.set_float32_matmul_precision(matmul)
    names, device = vars(load_file(options.source)), options.device
    loss = compile(options.loss, "--loss", "eval")
    torch.manual_seed(0)
    original = eval(options.model, names)
    report = Report(options.out, device)
    losses_of, step_ms = {}, {}
    for mode in (None, *options.compile):
        kind = f"compiled, {mode}: " if mode else ""
        for name in ("plain", "trigen"):
            arm = kind + name
            model = copy.deepcopy(original).to(device)
            line = {}
            if name == "trigen":
                found = tt.convert(model, tokens=options.tokens)
                line = {"converted": len(found.converted), "left": len(found.skipped)}
            run = torch.compile(model, dynamic=False, mode=mode) if mode else model
            source = texts(options.batch, options.tokens, device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
            losses, seconds = training_steps(
                lambda ids, run=run: eval(loss, names, {"model": run, "ids": next(ids)}),
                optimizer,
                source,
                autocast,
                device,
                options.warm,
                options.steps - options.warm,
            )
            losses_of[arm] = torch.stack(losses).float().cpu()
            step_ms[arm] = 1e3 * statistics.median(seconds)
            apart = (losses_of[arm] / losses_of["plain"] - 1).abs()
            report.add(
                arm=arm,
                model=options.model,
                batch=options.batch,
                tokens=options.tokens,
                precision=options.precision,
                steps=options.steps,
                step_ms=round(step_ms[arm], 3),
                tokens_per_s=round(1e3 * options.batch * options.tokens / step_ms[arm]),
                times_plain=round(step_ms[kind + "plain"] / step_ms[arm], 3),
                first_loss=round(float(losses_of[arm][0]), 5),
                last_loss=round(float(losses_of[arm][-1]), 5),
                apart=float(f"{float(apart.max()):.2g}"),
                apart_at_the_end=float(f"{float(apart[-1]):.2g}"),
                **line,
            )
            torch._dynamo.reset()


if __name__ == "__main__":
    main()
