"""`ops.quant_linear` on a card: in graphs, on streams, compiled, right after weights have changed, and its memory. Skipped where there is none.

Weights and activations are whole numbers, each group of x has a 127 in it, so that int8 holds x as it is, and every sum is exact: whatever ran has to
give the same bits.
"""

from contextlib import ExitStack

import pytest
import torch

from lanewise import dispatch, nn, ops, settings
from lanewise.kernels.gpu.chain import chain
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_pack import pack

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
    pytest.mark.filterwarnings("ignore:quant_linear expands"),
]
DEVICE = "cuda"
N, K = 512, 512
ARMS = {"quant_gemv": (), "quant_gemm": ("QUANT_GEMV",), "quant_blas": ("QUANT_GEMV", "QUANT_GEMM")}
# The scales of a block, all 1, in front of 256 codes: d, dmin, and (format Q4_K) 6 bits each of scales 1 and minima 3.
_ONES = {"Q8_0": bytes([0, 0x3C]), "Q4_K": bytes([0, 0x3C] * 2 + [1] * 4 + [3] * 4 + [0x31] * 4)}


def raw_of(fmt="Q4_K", rows=N, k=K, device=None):
    head = torch.tensor(list(_ONES[fmt]), dtype=torch.uint8)
    blocks, codes, most = (k // 32, 32, 9) if fmt == "Q8_0" else (k // 256, 128, 256)
    body = torch.randint(0, most, (rows, blocks, codes), dtype=torch.uint8)
    return torch.cat([head.expand(rows, blocks, len(head)), body], 2).flatten(1).to(device or DEVICE)


def whole(m, k=K, dtype=torch.bfloat16, device=None):
    x = torch.randint(-8, 9, (m, k))
    x[:, ::32] = 127
    return x.to(device or DEVICE, dtype)


def right(x, w, *others, gated=False, **more):
    return chain(x, expand(w, x.dtype), *others, gated=gated, **more)


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """BLAS adds its parts in float32, as the definition does."""
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"):
        monkeypatch.setattr(torch.backends.cuda.matmul, name, False)


@pytest.fixture(params=ARMS)
def arm(request):
    """Each kernel in turn, the ones in front of it switched off."""
    with ExitStack() as stack:
        for name in ARMS[request.param]:
            stack.enter_context(settings.switched(name, "0"))
        yield request.param


@pytest.mark.parametrize("fmt", _ONES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_whatever_runs_gives_the_bits_of_the_chain(arm, fmt, dtype):
    for m in (1, 3, 8, 9, 33):
        for gated in (False, True):
            w, x = pack(raw_of(fmt, 2 * N if gated else N), fmt, gated), whole(m, dtype=dtype)
            # so large a bias makes SiLU the gate itself
            bias, residual = torch.full((w.rows,), 2.0**15, device=DEVICE), torch.ones(m, N, device=DEVICE)
            with dispatch.witness() as ran:
                y = ops.quant_linear(x, w, bias, residual=residual, out=torch.float32)
            assert set(ran) <= {arm, "quant_gemm" if arm == "quant_gemv" else arm}
            assert torch.equal(y, right(x, w, bias, residual, gated=gated, out=torch.float32))


def test_a_graph_holds_what_dispatch_chose_and_is_right_for_other_numbers(arm):
    weights, inputs, graphs, results = [pack(raw_of(), "Q4_K") for _ in range(2)], [whole(1), whole(3)], [], []
    for x, w in zip(inputs, weights, strict=True):
        ops.quant_linear(x, w, out=torch.float32, constant_w=True)  # the same kernel: while a graph is recorded none can be compiled
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]), dispatch.witness() as ran:
            results.append(ops.quant_linear(x, w, out=torch.float32, constant_w=True))
        assert dict(ran) == {arm: 1}
    for turn in range(10):
        for i in (turn % 2, 1 - turn % 2):
            inputs[i].copy_(whole(*inputs[i].shape))
            graphs[i].replay()
            assert torch.equal(results[i], right(inputs[i], weights[i], out=torch.float32))


def test_streams_do_not_disturb_each_other(arm):
    weights, streams = [pack(raw_of(), "Q4_K") for _ in range(4)], [torch.cuda.Stream() for _ in range(4)]
    inputs = [whole(i % 4 + 1) for i in range(16)]
    torch.cuda.synchronize()
    results = []
    for i, x in enumerate(inputs):
        with torch.cuda.stream(streams[i % 4]):
            results.append(ops.quant_linear(x, weights[i % 3], out=torch.float32, constant_w=True))
    torch.cuda.synchronize()
    for i, (x, y) in enumerate(zip(inputs, results, strict=True)):
        assert torch.equal(y, right(x, weights[i % 3], out=torch.float32))


@pytest.mark.filterwarnings("default")  # torch.compile warns of what it would do with float32, which is no error here
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_graph_calls_what_dispatch_chose(mode):
    module, x = nn.QuantLinear(raw_of(), "Q4_K"), whole(1)
    with dispatch.witness() as alone:
        module(x)
    layer = torch.compile(lambda x: module(x + 0), mode=mode, fullgraph=True)
    with torch.no_grad(), dispatch.witness() as ran:
        for _ in range(4):
            y = layer(x).clone()
    assert set(ran) == set(alone)
    assert torch.equal(y, right(x, module.weight))


def test_weights_that_have_just_been_loaded_are_those_that_count():
    """The layer promises that they rest: what rounds x stands between whoever wrote them and whoever reads them early."""
    others, x = [nn.QuantLinear(raw_of(), "Q4_K").state_dict() for _ in range(2)], whole(1)
    layer = nn.QuantLinear(raw_of(), "Q4_K")
    for step in range(50):
        layer.load_state_dict(others[step % 2])
        first, second = layer(x), layer(x)
        want = right(x, layer.weight)
        assert torch.equal(first, want), step
        assert torch.equal(second, want), step


def test_unpacked_weights_of_many_layers_take_the_memory_of_one():
    side, many = 2048, 8
    x, layers = whole(16, side), [pack(raw_of(rows=side, k=side), "Q4_K") for _ in range(many)]
    with settings.switched("QUANT_GEMV", "0"), dispatch.witness() as ran:
        ops.quant_linear(x, layers[0])  # BLAS takes its own memory once
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results = [ops.quant_linear(x, w) for w in layers]
        unpacked = side * side * x.element_size()
        assert torch.cuda.max_memory_allocated() - before < 2 * unpacked
        assert torch.cuda.memory_allocated() - before < unpacked
    assert dict(ran) == {"quant_gemm": many + 1}
    assert len(results) == many


def test_tensors_of_a_device_that_is_not_the_current_one(arm):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x, w = whole(1, device="cuda:1"), pack(raw_of(device="cuda:1"), "Q4_K")
    assert torch.cuda.current_device() == 0
    assert torch.equal(ops.quant_linear(x, w), right(x, w))
    assert torch.cuda.current_device() == 0
