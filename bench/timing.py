"""The timing loops of the benchmarks, and their report: arms in turn, times by the host's clock, by CUDA events or of CUDA graphs. On a CPU
everything runs, without graphs, for testing the scripts themselves."""

import json
import statistics
import time

try:
    import torch
except ImportError:  # jax_ops.py needs none
    torch = None

LEAST_ROUNDS = 7


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


def in_turn(arms, rounds, warm=0, seconds=None):
    """{name: samples}. `arms`: {name: function that takes a sample}. Each round begins with another arm; the first `warm` ones do not
    count, and with `seconds` none begins after so long, once there are LEAST_ROUNDS."""
    samples, names = {name: [] for name in arms}, list(arms)
    for number in range(-warm, rounds):
        if number == 0:
            began = time.perf_counter()
        if seconds is not None and number >= LEAST_ROUNDS and time.perf_counter() - began > seconds:
            break
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            sample = arms[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


def operator_of_nothing(key):
    """An operator of three tensors of torch.library, of that dispatch key, that returns two of them: what the dispatcher asks for. Once a process."""
    library = torch.library.Library("nothing", "FRAGMENT")
    library.define("scan(Tensor x, Tensor w, Tensor bias) -> (Tensor, Tensor)")
    library.impl("scan", lambda x, w, bias: (x, w), key)
    _libraries.append(library)
    return torch.ops.nothing.scan.default


_libraries = []  # an operator goes with its library


def host_us(call, calls, wait=lambda result: None, clock=time.perf_counter):
    """Microseconds a call by the host's clock (time.process_time leaves out what other processes take); `wait` gets what the last one returned."""
    began = clock()
    for _ in range(calls):
        result = call()
    wait(result)
    return 1e6 * (clock() - began) / calls


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


def capture(run, warm):
    """(a CUDA graph of run, "") or (None, why there is none). warm runs before, on the stream of the capture: leaves of autograd remember the
    stream that they were first used on, for as long as a graph of autograd holds them, and are waited for there."""
    stream, before = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            warm()
        before.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()
        return graph, ""
    except RuntimeError as error:
        torch.cuda.set_stream(before)  # a capture that ends in an error leaves its own
        torch.cuda.synchronize()
        return None, str(error).splitlines()[0]


def median(values):
    return round(statistics.median(values), 2) if values else None


def time_graphs(arms, sets, seconds, rounds):
    """{name: microseconds of a call}. `arms`: {name: function of a set}; a graph of each over all sets, replayed in turn."""
    clock, replays = Clock("cuda"), {}
    for name, arm in arms.items():

        def every(arm=arm):
            for one in sets:
                arm(one)

        graph, why = capture(every, lambda arm=arm: arm(sets[0]))
        if graph is None:
            raise RuntimeError(why)
        replays[name] = lambda graph=graph: clock(graph.replay) / len(sets)
    return in_turn(replays, rounds, warm=2, seconds=seconds)


def training_steps(run, optimiser, tokens, autocast, device, warm, steps):
    """(every step's loss, seconds of each step after the first `warm` ones). A step is forward under autocast, backward, optimiser."""
    losses, seconds = [], []
    for _ in range(warm + steps):
        synchronize(device)
        start = time.perf_counter()
        with torch.autocast(device, autocast, enabled=autocast is not None):
            loss = run(tokens)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
        losses.append(loss.detach().clone())  # a CUDA graph writes the next one there
    return losses, seconds[warm:]
