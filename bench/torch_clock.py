"""What the parts of torch_ops.py share: the report and the clock. On a CPU everything runs, without graphs, for testing the script itself."""

import json
import statistics
import time

import torch


def parameters_of(text):
    """ "B,T,D[,K[,H]]" as integers; D is the features of one head."""
    sizes = [int(size) for size in text.split(",")]
    if not 3 <= len(sizes) <= 5 or min(sizes) < 1:
        raise ValueError(f"shape {text!r}; allowed: B,T,D, then K (taps), then H (heads), all at least 1")
    return (*sizes, *(1, 1)[len(sizes) - 3 :])


class Report:
    """JSON objects, one a line, written as they come."""

    def __init__(self, path, device, **common):
        self.file = open(path, "a") if path else None
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        self.common = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, **common}
        self.began = time.perf_counter()

    def add(self, **fields):
        line = json.dumps({**fields, "at_s": round(time.perf_counter() - self.began, 1), **self.common})
        print(line, flush=True)
        if self.file:
            self.file.write(line + "\n")
            self.file.flush()


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Clock:
    """Microseconds of a call, by events on a GPU (so with what the GPU does, not only what the host does)."""

    def __init__(self, device):
        self.device = device
        if device == "cuda":
            self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def __call__(self, run):
        synchronize(self.device)
        if self.device != "cuda":
            began = time.perf_counter()
            run()
            return 1e6 * (time.perf_counter() - began)
        self.begin.record()
        run()
        self.end.record()
        self.end.synchronize()
        return 1e3 * self.begin.elapsed_time(self.end)


class Floor(torch.autograd.Function):
    """The least that a derivative written in Python costs: the same tensors kept and returned, nothing checked, nothing launched."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.bias = bias.detach()
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return torch.empty_like(grad), torch.empty_like(weight), torch.empty_like(ctx.bias)


def capture(run, warm):
    """(a CUDA graph of run, "") or (None, why there is none)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            warm()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph, ""
    except RuntimeError as error:
        torch.cuda.synchronize()
        return None, str(error).splitlines()[0]


def median(values):
    return round(statistics.median(values), 2) if values else None
