"""Training on a GPU: known calls against the operator, optimisers, checkpointing, DDP over NCCL, graphs of whole steps. [SKIP] without one."""

import copy
import socket
import warnings

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("[SKIP] torch sees no CUDA device", allow_module_level=True)

import torch.distributed as dist
import trigen
import trigen.torch as tt
from torch import nn
from torch.utils.checkpoint import checkpoint
from trigen.torch import guards, known

warnings.simplefilter("ignore", trigen.TrigenWarning)


def leaves_of(B=4, n=128, D=64, dtype=torch.bfloat16, wdtype=torch.float32):
    weight = torch.randn(n, n, 1, device="cuda") / n**0.5
    weight[torch.ones(n, n, device="cuda").triu(1).bool()] = float("nan")
    tensors = torch.randn(B, n, D, device="cuda").to(dtype), weight.to(wdtype), torch.randn(n, device="cuda").to(wdtype)
    return [tensor.requires_grad_() for tensor in tensors], torch.randn(B, n, D, device="cuda").to(dtype)


def step(call, leaves, dy):
    y = call(*leaves)
    return [y, *torch.autograd.grad(y, leaves, dy)]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wdtype", ["x", torch.float32])
def test_a_known_step_is_the_operators_bit_for_bit(autocast, wdtype):
    assert guards.works()
    known.forget()
    dtype = autocast or torch.bfloat16
    leaves, dy = leaves_of(dtype=dtype, wdtype=dtype if wdtype == "x" else wdtype)
    with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
        want = step(tt.forward, leaves, dy)
        for turn in range(3):
            got = step(tt.triangular_conv1d, leaves, dy)
            assert type(got[0].grad_fn).__name__ == ("MixerBackward" if turn == 0 else "RecordedBackward")
            for one, two in zip(got, want):
                assert torch.equal(one, two)
    (calls,) = known._calls.values()
    assert len(calls) == 1 and len(calls[0].backward) == 1


def test_another_autocast_dtype_is_another_call():
    leaves, _ = leaves_of(dtype=torch.float32)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            assert tt.triangular_conv1d(*leaves).dtype == dtype


def test_an_optimiser_in_place_is_seen_at_the_next_step():
    """AdamW in place (foreach and fused) and by weight.data: eager, known from the second step on, against plain torch in double."""
    for fused in (False, True):
        torch.manual_seed(1)
        mixer = tt.TriangularConv1d(64, device="cuda")
        double = copy.deepcopy(mixer).double()
        pairs = [(module, torch.optim.AdamW(module.parameters(), lr=1e-2, fused=fused)) for module in (mixer, double)]
        for turn in range(6):
            x = torch.randn(8, 64, 32, device="cuda")
            results = []
            for module, optimiser in pairs:
                own = x.double() if module is double else x
                with torch.autocast("cuda", torch.bfloat16, enabled=module is mixer):
                    loss = (module(own) - 1).square().mean()
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                if turn == 3:
                    module.weight.data.mul_(0.5)
                results.append(loss.detach().double())
            assert abs(results[0] - results[1]) < 2e-2 * results[1], (turn, results)


class Blocks(nn.Module):
    def __init__(self, count, tokens, features):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(count))
        self.mixers = nn.ModuleList(tt.TriangularConv1d(tokens) for _ in range(count))

    def forward(self, x, way=None):
        for norm, mixer in zip(self.norms, self.mixers):

            def block(x, norm=norm, mixer=mixer):
                return x + mixer(norm(x))

            x = block(x) if way is None else checkpoint(block, x, use_reentrant=way)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    model = Blocks(3, 64, 32).cuda()
    x = torch.randn(4, 64, 32, device="cuda", requires_grad=True)
    for _ in range(2):
        gradients = []
        for way in (None, reentrant):
            x.grad = None
            model.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x, way).square().mean()
            loss.backward()
            gradients.append([x.grad, *(parameter.grad for parameter in model.parameters())])
        for one, two in zip(*gradients):
            assert torch.equal(one, two)


def test_a_data_parallel_step_over_nccl():
    """One process: DDP's hooks, buckets and NCCL's streams around the operator; gradients are the module's own."""
    if not dist.is_nccl_available():
        pytest.skip("[SKIP] this torch has no NCCL")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{port.getsockname()[1]}"
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    try:
        model = Blocks(3, 64, 32).cuda()
        twin = copy.deepcopy(model)
        parallel = nn.parallel.DistributedDataParallel(model, device_ids=[0])
        for _ in range(3):
            x = torch.randn(4, 64, 32, device="cuda")
            for module in (parallel, twin):
                module.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.bfloat16):
                    module(x).square().mean().backward()
            for one, two in zip(model.parameters(), twin.parameters()):
                torch.testing.assert_close(one.grad, two.grad)
    finally:
        dist.destroy_process_group()


def test_a_graph_of_a_whole_training_step():
    """Forward, backward and a capturable AdamW in one graph: each replay reads the weights that the last one wrote."""
    torch.manual_seed(2)
    model = Blocks(2, 64, 32).cuda()
    twin = copy.deepcopy(model)
    optimisers = [torch.optim.AdamW(module.parameters(), lr=1e-2, capturable=True) for module in (model, twin)]
    x = torch.randn(4, 64, 32, device="cuda")

    def train(module, optimiser):
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16):
            loss = (module(x) - 1).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            train(model, optimisers[0])
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(3):
        train(twin, optimisers[1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = train(model, optimisers[0])
    for _ in range(4):
        graph.replay()
        loss = train(twin, optimisers[1])
        torch.testing.assert_close(captured, loss.detach(), rtol=1e-4, atol=1e-6)
    for one, two in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_convert_and_compile_a_model():
    """A model of masked convolutions on the GPU, converted, then compiled whole."""

    class Masked(nn.Conv1d):
        def forward(self, x):
            return nn.functional.conv1d(
                x, self.weight * torch.ones_like(self.weight[:, :, 0]).tril().unsqueeze(-1), self.bias
            )

    model = nn.Sequential(nn.LayerNorm(32), Masked(64, 64, 1), nn.GELU(), Masked(64, 64, 1)).cuda()
    x = torch.randn(4, 64, 32, device="cuda", requires_grad=True)
    want = model(x)
    report = tt.convert(model, tokens=64, example_inputs=(x,))
    assert len(report.converted) == 2, str(report)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    for call in (model, compiled):
        got = call(x)
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
        for one, two in zip(
            torch.autograd.grad(got.sum(), (x, *model.parameters())),
            torch.autograd.grad(model(x).sum(), (x, *model.parameters())),
        ):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


def test_the_example(tmp_path, capsys):
    """Fewer steps than on a CPU, where they are 200: this is the GPU's path, with torch.compile, tokens/s and pictures."""
    import importlib.util
    from pathlib import Path

    file = Path(__file__).resolve().parents[3] / "examples/python/train_mixer.py"
    spec = importlib.util.spec_from_file_location("train_mixer", file)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main(["--steps", "120", "--rate", "3e-3", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("tokens/s") == 4
    pytest.importorskip("matplotlib", reason="[SKIP] matplotlib is not installed")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("loss.png", "step_time.png"))


def test_keep_dense_times_both_and_says_what_it_found():
    for tokens in (8, 1024):
        conv = nn.Conv1d(tokens, tokens, 1).cuda().half()
        with torch.no_grad():
            conv.weight.copy_(torch.tril(conv.weight.squeeze(-1)).unsqueeze(-1))
        x = torch.randn(4, tokens, 512, device="cuda", dtype=torch.float16)
        report = trigen.torch.convert(nn.Sequential(conv), tokens=tokens, example_inputs=(x,), keep_dense="faster")
        assert list(report.converted) + list(report.skipped) == ["0"]
        assert all(
            reason.startswith(f"dense is as fast for (4, {tokens}, 512): ") for reason in report.skipped.values()
        )
