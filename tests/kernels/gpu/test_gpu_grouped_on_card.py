"""`ops.grouped_linear` on a card: what each way gives, in graphs, compiled, and with ids that are no expert's. Skipped where there is none.

Experts and activations are whole numbers, and each group of x has a 127 in it, so that int8 holds x as it is and every sum is exact.
"""

import pytest
import torch

from lanewise import dispatch, nn, ops, settings
from lanewise.errors import DeviceError, ShapeError
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_pack import pack

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
    pytest.mark.filterwarnings("ignore:grouped_linear expands"),
]
DEVICE = "cuda"
EXPERTS, TOP, N, K = 6, 2, 48, 512
_ONES = bytes([0, 0x3C] * 2 + [1] * 4 + [3] * 4 + [0x31] * 4)  # d and dmin 1, scales 1 and minima 3 (format Q4_K), in front of 256 codes


def raw_of():
    head = torch.tensor(list(_ONES), dtype=torch.uint8)
    body = torch.randint(0, 256, (EXPERTS, N, K // 256, 128), dtype=torch.uint8)
    return torch.cat([head.expand(EXPERTS, N, K // 256, len(head)), body], 3).flatten(2).to(DEVICE)


def whole(*shape):
    x = torch.randint(-8, 9, (*shape, K))
    x[..., ::32] = 127
    return x.to(DEVICE, torch.bfloat16)


def chosen(tokens):
    return torch.rand(tokens, EXPERTS).argsort(1)[:, :TOP].int().to(DEVICE)


def right(x, w, ids, weights=None):
    rows = x.double() if x.dim() == 3 else x.double()[:, None].expand(-1, TOP, -1)
    y = torch.einsum("tsk,tsnk->tsn", rows, expand(w, torch.float64)[ids.long()]).float()
    return y if weights is None else y * weights[..., None].float()


@pytest.mark.parametrize("kernel", ["grouped_quant", "grouped_blas"])
@pytest.mark.parametrize("tokens", [1, 3, 40])  # pair by pair, and in order
def test_whatever_runs_gives_each_pair_its_expert(kernel, tokens):
    w, ids, weights = pack(raw_of(), "Q4_K"), chosen(tokens), torch.rand(tokens, TOP, device=DEVICE)
    with settings.switched("QUANT_GEMV", "1" if kernel == "grouped_quant" else "0"):
        for x in (whole(tokens), whole(tokens, TOP)):
            for given in ((ids,), (ids.long(), weights), (torch.full_like(ids, EXPERTS - 1),)):
                with dispatch.witness() as ran:
                    y = ops.grouped_linear(x, w, *given, out=torch.float32, constant_w=True)
                assert dict(ran) == {kernel: 1}
                assert torch.equal(y, right(x, w, *given))


@pytest.mark.parametrize("tokens", [2, 40])
def test_a_graph_is_right_for_other_numbers_and_other_experts(tokens):
    w, x, ids = pack(raw_of(), "Q4_K"), whole(tokens), chosen(tokens)
    ops.grouped_linear(x, w, ids, out=torch.float32)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), dispatch.witness() as ran:
        y = ops.grouped_linear(x, w, ids, out=torch.float32)
    assert dict(ran) == {"grouped_quant": 1}
    for _ in range(10):
        x.copy_(whole(tokens))
        ids.copy_(chosen(tokens))
        graph.replay()
        assert torch.equal(y, right(x, w, ids))
    ids[0, 0] = EXPERTS
    graph.replay()
    assert y.isnan().nonzero().tolist() == [[0, 0, i] for i in range(N)]


def test_a_bad_id_raises_and_a_graph_without_a_kernel_is_refused_in_words():
    w, x, ids = pack(raw_of(), "Q4_K"), whole(2), chosen(2)
    ids[1, 1] = -1
    with pytest.raises(ShapeError, match="expert ids run from -1 to"):
        ops.grouped_linear(x, w, ids)
    with settings.switched("QUANT_GEMV", "0"), pytest.raises(DeviceError, match="has to know the ids"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.grouped_linear(x.add_(0), w, ids)  # of a graph without anything torch warns


@pytest.mark.filterwarnings("default")  # torch.compile warns of what it would do with float32, which is no error here
def test_a_compiled_layer_calls_the_kernel():
    layer, x, ids = nn.QuantExperts(raw_of(), "Q4_K"), whole(2), chosen(2)
    compiled = torch.compile(lambda x, ids: layer(x + 0, ids, check=False), fullgraph=True)
    with torch.no_grad(), dispatch.witness() as ran:
        for _ in range(3):
            y = compiled(x, ids).clone()
    assert set(ran) == {"grouped_quant"}
    assert torch.equal(y.float(), right(x, layer.weight, ids).bfloat16().float())
