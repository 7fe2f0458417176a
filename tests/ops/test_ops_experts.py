"""`ops.grouped_linear`: what it computes where no kernel runs, what it refuses, with gradients, and as an operator of torch under torch.compile."""

import itertools

import pytest
import torch
from support.quant import raw_of
from torch.nn import functional

from lanewise import dispatch, ops
from lanewise.contract import Tolerance
from lanewise.errors import DeviceError, ShapeError
from lanewise.kernels.gpu import device, experts, quant
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack

T, TOP, E, N, K = 5, 2, 4, 3, 64
IDS = torch.tensor([[0, 2], [2, 2], [0, 3], [3, 0], [2, 0]], dtype=torch.int32)  # expert 1 has no rows, and one token an expert twice
pytestmark = pytest.mark.filterwarnings("ignore:grouped_linear expands")


def made(gated=False, dtype=torch.bfloat16):
    """Packed experts of Q8_0 with d = 0.5, whose sums with whole numbers are exact in any order; and what their files say."""
    q = torch.randint(-100, 100, (E, 2 * N if gated else N, K // 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    d = torch.tensor([0, 56], dtype=torch.uint8).expand(*q.shape[:-1], 2)
    return pack(torch.cat((d, q.view(torch.uint8)), -1).flatten(2), "Q8_0", gated), (q / 2).flatten(2).to(dtype)


def whole(*shape, dtype=torch.bfloat16):
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("own", [False, True], ids=["a row a token", "a row a pair"])
@pytest.mark.parametrize(("gated", "out"), [(False, torch.bfloat16), (False, torch.float32), (True, torch.bfloat16)])
def test_each_pair_is_the_unfused_chain_of_its_expert(gated, out, own):
    packed, w = made(gated)
    x, weights = whole(T, *[TOP] * own, K), torch.rand(T, TOP)
    with dispatch.witness() as ran:
        y = ops.grouped_linear(x, packed, IDS, weights, out=out)
    assert (dict(ran), y.dtype, y.shape) == ({"grouped_blas": 1}, out, (T, TOP, N))
    for narrow, given in ((weights, y), (weights.bfloat16(), ops.grouped_linear(x, packed, IDS.long(), weights.bfloat16(), out=out))):
        for t, s in itertools.product(range(T), range(TOP)):
            one = ops.linear(x[t, s] if own else x[t], w[IDS[t, s]], gated=gated, out=out)
            assert torch.equal(given[t, s], (one.float() * narrow[t, s].float()).to(out))


def test_there_may_be_no_tokens_no_slots_and_no_features():
    packed, _ = made(dtype=torch.float32)
    assert ops.grouped_linear(torch.zeros(0, K), packed, IDS[:0]).shape == (0, TOP, N)
    assert ops.grouped_linear(torch.zeros(T, 0, K), packed, IDS[:, :0]).shape == (T, 0, N)
    assert ops.grouped_linear(torch.zeros(T, K), pack(torch.zeros(E, 0, 68, dtype=torch.uint8), "Q8_0"), IDS).shape == (T, TOP, 0)


@pytest.mark.parametrize(("bad", "words"), [(-1, "expert ids run from -1 to 3; there are experts 0 to 3"), (4, "expert ids run from 0 to 4; ")])
def test_an_id_that_is_no_experts_is_refused_and_without_the_check_its_row_is_no_number(bad, words):
    packed, _ = made()
    x, ids = torch.randn(T, K).bfloat16(), IDS.clone()
    ids[3, 0] = bad
    with pytest.raises(ShapeError, match=words):
        ops.grouped_linear(x, packed, ids)
    y = ops.grouped_linear(x, packed, ids, torch.ones(T, TOP), check=False)
    assert y.isnan().nonzero().tolist() == [[3, 0, i] for i in range(N)]


def test_ids_for_no_experts_at_all_are_refused():
    nobody = pack(torch.zeros(0, N, 68, dtype=torch.uint8), "Q8_0")
    with pytest.raises(ShapeError, match="expert ids run from 0 to 3; there are no experts"):
        ops.grouped_linear(torch.zeros(T, K), nobody, IDS)
    assert ops.grouped_linear(torch.zeros(T, K), nobody, IDS, check=False).isnan().all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": torch.zeros(E, N, K)}, "w is a Tensor; grouped_linear takes a QuantWeight"),
        ({"w": pack(raw_of("Q8_0", N, K), "Q8_0")}, "w is one weight, without experts; quant_linear multiplies by it"),
        ({"x": None}, "x is a NoneType; grouped_linear takes torch tensors"),
        ({"expert_ids": [[0]]}, "expert_ids is a list; grouped_linear takes torch tensors"),
        ({"expert_ids": IDS.short()}, r"expert_ids are torch.int16 \[5, 2\]; they have to be int32 or int64 \[tokens, top_k\]"),
        ({"expert_ids": IDS[0]}, r"expert_ids are torch.int32 \[2\]"),
        ({"x": torch.zeros(T, K + 1)}, r"x is \[5, 65\]; with expert_ids \[5, 2\] and w Q8_0 \[4, 3, 64\] it has to be \[5, 64\] or \[5, 2, 64\]"),
        ({"x": torch.zeros(T + 1, K)}, r"x is \[6, 64\]; with"),
        ({"x": torch.zeros(T, 1, K)}, r"x is \[5, 1, 64\]; with"),
        ({"x": torch.zeros(K)}, r"x is \[64\]; with"),
        ({"x": torch.zeros(T, K).double()}, "unknown dtype 'float64'"),
        ({"out": torch.float16}, "out is torch.float16; y is torch.float32 like x, or torch.float32"),
        ({"weights": torch.zeros(T)}, r"weights are torch.float32 \[5\]; they have to be \[5, 2\] of torch.float32 like x, or torch.float32"),
        ({"weights": torch.zeros(T, TOP).half()}, r"weights are torch.float16 \[5, 2\]; they have to be"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_words(change, words):
    given = {"x": torch.zeros(T, K), "w": made()[0], "expert_ids": IDS} | change
    with pytest.raises(ShapeError, match=words) if "float64" not in words else pytest.raises(Exception, match=words):
        ops.grouped_linear(**given)


def test_operands_on_two_devices_are_refused():
    with pytest.raises(DeviceError, match="expert_ids is on meta and x on cpu"):
        ops.grouped_linear(torch.zeros(T, K), made()[0], IDS.to("meta"))


def test_gradients_are_those_of_the_chain():
    packed, w = made(gated=True, dtype=torch.float32)
    x, weights = whole(T, K, dtype=torch.float32).requires_grad_(), torch.rand(T, TOP, requires_grad=True)
    every = torch.stack([functional.silu(x @ one[:N].T) * (x @ one[N:].T) for one in w])
    want = torch.stack([every[IDS[:, s].long(), torch.arange(T)] for s in range(TOP)], 1) * weights[..., None]
    got = ops.grouped_linear(x, packed, IDS, weights)
    for a, b in zip((got, *torch.autograd.grad(got.sum(), (x, weights))), (want, *torch.autograd.grad(want.sum(), (x, weights))), strict=True):
        # sums of at most K * TOP products, none of which is larger than all of them
        assert (a - b).abs().max() <= Tolerance.dot(K * TOP).summing * b.abs().max()


def test_it_is_an_operator_of_torch_and_one_node_of_a_compiled_graph():
    packed, _ = made()
    x, weights = torch.randn(T, K).bfloat16(), torch.rand(T, TOP)
    torch.library.opcheck(torch.ops.lanewise.grouped_linear.default, (x, packed.tiles, "Q8_0", N, K, False, IDS, weights), {"out": torch.float32})
    layer = torch.compile(lambda x, ids, weights: ops.grouped_linear(x, packed, ids, weights), fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (2, 4):
        given = x[:tokens], IDS[:tokens], weights[:tokens]
        assert torch.equal(layer(*given), ops.grouped_linear(given[0], packed, *given[1:]))


def test_it_says_once_why_experts_are_expanded(monkeypatch):
    monkeypatch.setattr(quant, "_EXPANDED", set())
    with pytest.warns(UserWarning, match="grouped_linear expands Q8_0 weights to bf16 at every call on x86.*is no GPU") as caught:
        [ops.grouped_linear(torch.zeros(T, K).bfloat16(), made()[0], IDS) for _ in range(2)]
    assert len(caught) == 1


def test_a_kernel_gets_what_was_asked_and_the_order_pays_from_many_pairs_on(monkeypatch):
    pytest.importorskip("triton")
    from lanewise.kernels.gpu import grouped

    seen = []
    monkeypatch.setattr(device, "named", lambda given: ("gfx1100", None))
    monkeypatch.setattr(grouped, "grouped", lambda *args, **named: seen.append((args, named)) or torch.zeros(()))
    monkeypatch.setattr(experts, "on", lambda x: torch.no_grad())
    packed, _ = made()
    for tokens in (1, 100):
        x, ids, weights = torch.zeros(tokens, K).bfloat16(), torch.zeros(tokens, TOP, dtype=torch.int64), torch.ones(tokens, TOP)
        ops.grouped_linear(x, packed, ids, weights, out=torch.float32, constant_w=True, ids_ready=True)
        args, named = seen.pop()
        assert all(a is b or a.data_ptr() == b.data_ptr() for a, b in zip((args[0], args[2], args[3]), (x, ids, weights), strict=True))
        assert (named["out"], named["constant_w"], named["ids_ready"], named["ordered"]) == (torch.float32, True, True, tokens == 100)
        assert (named["config"].body, str(named["arch"])) == ("dots", "gfx1100")


def test_on_meta_tensors_a_gradient_may_be_wanted_too():
    packed, _ = made(gated=True)
    meta = QuantWeight(packed.format, packed.n, packed.k, packed.gated, packed.tiles.to("meta"))
    for own in (False, True):
        x = torch.empty(T, *[TOP] * own, K, device="meta", requires_grad=True)
        y = ops.grouped_linear(x, meta, IDS.to("meta"), torch.empty(T, TOP, device="meta"))
        assert (y.shape, y.device.type) == ((T, TOP, N), "meta")
        y.sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_by_each_op():
    packed, w = made(dtype=torch.float32)
    x = torch.nested.nested_tensor([torch.zeros(T, K)])
    calls = {
        "linear": lambda: ops.linear(x, w[0]),
        "quant_linear": lambda: ops.quant_linear(x, pack(raw_of("Q8_0", N, K), "Q8_0")),
        "grouped_linear": lambda: ops.grouped_linear(x, packed, IDS),
    }
    for op, call in calls.items():
        with pytest.raises(ShapeError, match=f"x is a nested tensor; {op} takes strided tensors"):
            call()
