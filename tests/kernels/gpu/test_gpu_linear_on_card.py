"""`ops.linear` on a card: in graphs, on streams, compiled, and right after a weight has changed. Skipped where there is none.

Operands are whole numbers and so small that every sum is exact: whatever ran has to give the same bits as the chain.
"""

import pytest
import torch

from lanewise import dispatch, nn, ops
from lanewise.kernels.gpu.chain import chain

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
DEVICE = "cuda"
N, K = 512, 256


def whole(*shape, dtype=torch.bfloat16, device=None):
    return torch.randint(-2, 3, shape, device=device or DEVICE).to(dtype)


def twice(x, w, linear):
    """A product of a product, whose signs alone go on, so that its sums are exact too."""
    return linear(linear(x, w).sign().view(-1, K)[:1], w)


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """BLAS adds its parts in float32, as the definition does."""
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"):
        monkeypatch.setattr(torch.backends.cuda.matmul, name, False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("m", [1, 4, 5, 16, 17])
def test_whatever_runs_gives_the_bits_of_the_chain(m, dtype):
    x, w, bias, residual = whole(m, K, dtype=dtype), whole(N, K, dtype=dtype), whole(N, dtype=dtype), whole(m, N, dtype=dtype)
    for out in (dtype, torch.float32):
        with dispatch.witness() as ran:
            y = ops.linear(x, w, bias, residual=residual, out=out)
        assert set(ran) <= ({"blas"} if m == 17 else {"skinny", "blas"})
        assert torch.equal(y.double(), ((x.double() @ w.double().T + bias).to(out) + residual).double())
        assert torch.equal(chain(x, w, bias, residual, out=out), y)


def test_products_of_nothing_and_of_no_k():
    assert ops.linear(whole(0, K), whole(N, K)).shape == (0, N)
    assert ops.linear(whole(2, K), whole(0, K)).shape == (2, 0)
    bias = whole(N)
    assert not ops.linear(whole(2, 0), whole(N, 0), norm=whole(0)).any()
    assert torch.equal(ops.linear(whole(2, 0), whole(N, 0), bias), bias.expand(2, N))
    assert torch.equal(ops.linear(whole(17, 0), whole(N, 0), bias, out=torch.float32), bias.float().expand(17, N))


def test_two_graphs_replayed_in_turns_keep_to_themselves():
    inputs, weights, graphs, results = [whole(1, K), whole(2, K)], [whole(N, K), whole(N, K)], [], []
    for x, w in zip(inputs, weights, strict=True):
        ops.linear(x, w)  # compiled before the capture
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            results.append(twice(x, w, ops.linear))
    for turn in range(20):
        for i in (turn % 2, 1 - turn % 2):
            inputs[i].copy_(whole(*inputs[i].shape))
            graphs[i].replay()
            assert torch.equal(results[i], twice(inputs[i], weights[i], chain))


def test_streams_do_not_disturb_each_other():
    w, streams = whole(N, K), [torch.cuda.Stream() for _ in range(4)]
    inputs = [whole(i % 4 + 1, K) for i in range(16)]
    torch.cuda.synchronize()
    results = []
    for i, x in enumerate(inputs):
        with torch.cuda.stream(streams[i % 4]):
            results.append(ops.linear(x, w, constant_w=True))
    torch.cuda.synchronize()
    for x, y in zip(inputs, results, strict=True):
        assert torch.equal(y, chain(x, w))


@pytest.mark.filterwarnings("default")  # torch.compile warns of what it would do with float32, which is no error here
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_graph_calls_what_dispatch_chose(mode):
    x, w = whole(1, K), whole(N, K)
    with dispatch.witness() as alone:
        ops.linear(x, w)
    layer = torch.compile(lambda x: ops.linear(x + 0, w) + 1, mode=mode, fullgraph=True)
    with torch.no_grad(), dispatch.witness() as ran:
        for _ in range(4):
            y = layer(x).clone()
    assert set(ran) == set(alone)
    assert torch.equal(y, chain(x, w) + 1)


def test_a_weight_that_has_just_changed_is_the_one_that_counts():
    layer, x = nn.Linear(K, N, bias=False, device=DEVICE, dtype=torch.bfloat16), whole(1, K)
    with torch.no_grad():
        for step in range(50):
            layer.weight.copy_(whole(N, K))
            first, second = layer(x), layer(x)
            want = chain(x, layer.weight)
            assert torch.equal(first, want), step
            assert torch.equal(second, want), step


def test_tensors_of_a_device_that_is_not_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x, w = whole(1, K, device="cuda:1"), whole(N, K, device="cuda:1")
    assert torch.cuda.current_device() == 0
    assert torch.equal(ops.linear(x, w), chain(x, w))
    assert torch.cuda.current_device() == 0
