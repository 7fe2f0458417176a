"""`nn.QuantLinear` and `nn.QuantExperts`: layers with packed weights, their state, and what they refuse."""

import pytest
import torch
from support.quant import raw_of

from lanewise import dispatch, nn, ops
from lanewise.errors import FormatError, ShapeError
from lanewise.integrations import quantized
from lanewise.kernels.gpu.quant_pack import pack, unpack

M, N, K = 3, 5, 256
pytestmark = [pytest.mark.filterwarnings(f"ignore:{op} expands") for op in ("quant_linear", "grouped_linear")]


def test_it_computes_what_the_op_does_and_promises_that_its_weights_rest(monkeypatch):
    said, real = [], ops.quant_linear
    monkeypatch.setattr(quantized.ops, "quant_linear", lambda *a, constant_w: said.append(constant_w) or real(*a, constant_w=constant_w))
    x = torch.randn(2, M, K)
    for gated in (False, True):
        raw, bias = raw_of("Q4_K", 2 * N, K), torch.randn(2 * N)
        layer = nn.QuantLinear(raw, "q4_k", bias, gated=gated)
        with dispatch.witness() as ran:
            assert torch.equal(layer(x), real(x, pack(raw, "Q4_K", gated), bias))
        assert dict(ran) == {"quant_blas": 2}
        assert torch.equal(unpack(layer.weight), raw)
        assert layer(x).shape == (2, M, layer.out_features)
    assert set(said) == {True}
    assert str(layer) == "QuantLinear(in_features=256, out_features=5, format=Q4_K, gated=True)"


def test_it_is_a_layer_of_torch():
    layer, x = nn.QuantLinear(raw_of("Q5_0", N, K), "Q5_0", torch.randn(N)), torch.randn(M, K, requires_grad=True)
    assert [*layer.parameters()] == []
    layer(x).sum().backward()
    assert x.grad.shape == x.shape
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))
    tiles = layer.tiles.clone()
    layer.to(torch.bfloat16)
    assert torch.equal(layer.tiles, tiles)
    assert layer(x.bfloat16()).dtype is torch.bfloat16


def test_its_state_becomes_another_layers(tmp_path):
    layer, other = (nn.QuantLinear(raw_of("Q6_K", N, K, seed), "Q6_K", torch.randn(N)) for seed in (0, 1))
    x = torch.randn(M, K)
    assert not torch.equal(other(x), layer(x))
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize(("fmt", "n", "gated"), [("IQ4_NL", 10, False), ("Q4_0", 9, False), ("Q4_0", 10, True)])
def test_state_of_tiles_that_mean_something_else_is_refused(fmt, n, gated):
    """Tiles of 4-bit formats are of one size, as are those of 9 rows and of 10: their shape does not tell."""
    state = nn.QuantLinear(raw_of("Q4_0", 10, K), "Q4_0").state_dict()
    layer = nn.QuantLinear(raw_of(fmt, n, K), fmt, gated=gated)
    assert layer.tiles.shape == state["tiles"].shape
    with pytest.raises(FormatError, match=r"the state is of a layer with {'format': 'Q4_0'.*'out_features': 10.*; this one has"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("strict", [True, False])
def test_state_that_is_refused_leaves_the_layer_as_it_was(strict):
    """Whoever goes on after the error would multiply by another format's bytes; and tiles alone do not say what they are."""
    state = nn.QuantLinear(raw_of("Q4_0", 10, K), "Q4_0").state_dict()
    layer = torch.nn.Sequential(nn.QuantLinear(raw_of("IQ4_NL", 10, K), "IQ4_NL"))
    before = layer[0].tiles.clone()
    for given in ({f"0.{name}": value for name, value in state.items()}, {"0.tiles": state["tiles"]}):
        with pytest.raises(FormatError, match=r"the state is of a layer with .*; this one has {'format': 'IQ4_NL'"):
            layer.load_state_dict(given, strict=strict)
        assert torch.equal(layer[0].tiles, before)
    assert layer.load_state_dict({}, strict=False).missing_keys == ["0.tiles", "0._extra_state"]


def test_the_bias_of_a_layer_that_was_trained_does_not_ask_for_a_gradient():
    """With one, every call outside of no_grad would take the path that expands the weights."""
    layer = nn.QuantLinear(raw_of("Q4_0", N, K), "Q4_0", torch.nn.Linear(K, N).bias)
    assert not layer(torch.randn(M, K)).requires_grad
    assert [*layer.parameters()] == []


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((torch.zeros(2, 34), "Q8_0"), ShapeError, r"raw is float32 \[2, 34\]"),
        ((torch.zeros(3, 2, 34, dtype=torch.uint8), "Q8_0"), ShapeError, r"raw is uint8 \[3, 2, 34\]; a layer has \[rows, row_bytes\]"),
        ((torch.zeros(2, 33, dtype=torch.uint8), "Q8_0"), FormatError, "a row of 33 bytes is not a whole number of blocks"),
        ((torch.zeros(2, 34, dtype=torch.uint8), "F16"), FormatError, "F16"),
        ((torch.zeros(2, 34, dtype=torch.uint8), "Q8_0", torch.zeros(3)), ShapeError, r"bias is \[3\]; it has to be \[2\]"),
        ((torch.zeros(2, 34, dtype=torch.uint8), "Q8_0", 1.0), ShapeError, r"bias is float; it has to be \[2\]"),
        ((torch.zeros(2, 34, dtype=torch.uint8), "Q8_0", torch.zeros(2).long()), ShapeError, r"bias is torch\.int64 on cpu; .* on cpu like raw"),
        ((torch.zeros(2, 34, dtype=torch.uint8), "Q8_0", torch.zeros(2).to("meta")), ShapeError, r"bias is torch\.float32 on meta; .* on cpu like"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_are_none_are_refused_in_words(given, error, words):
    with pytest.raises(error, match=words):
        nn.QuantLinear(*given)


EXPERTS, IDS = 3, torch.tensor([[2, 0], [0, 0]])


def experts_of(fmt, rows, seed=0):
    return torch.stack([raw_of(fmt, rows, K, seed + one) for one in range(EXPERTS)])


def test_experts_compute_what_the_op_does_and_promise_that_they_rest(monkeypatch):
    said, real = [], ops.grouped_linear
    monkeypatch.setattr(quantized.ops, "grouped_linear", lambda *a, **named: said.append(named) or real(*a, **named))
    x, weights = torch.randn(2, K), torch.rand(2, 2)
    for gated in (False, True):
        raw = experts_of("Q4_K", 2 * N)
        layer = nn.QuantExperts(raw, "q4_k", gated=gated)
        for given in ((x, IDS), (x, IDS, weights), (x[:, None].expand(2, 2, K), IDS, weights)):
            assert torch.equal(layer(*given), real(given[0], pack(raw, "Q4_K", gated), *given[1:]))
        assert layer(x, IDS).shape == (2, 2, layer.out_features)
        assert torch.equal(unpack(layer.weight), raw)
        with pytest.raises(ShapeError, match="expert ids run from 1 to 3; there are experts 0 to 2"):
            layer(x, IDS + 1)
        assert layer(x, IDS + 1, check=False).isnan().any(2).tolist() == [[True, False], [False, False]]
    assert {named["constant_w"] for named in said} == {True}
    assert str(layer) == "QuantExperts(experts=3, in_features=256, out_features=5, format=Q4_K, gated=True)"


def test_experts_are_a_layer_of_torch():
    layer = nn.QuantExperts(experts_of("Q8_0", N), "Q8_0")
    x, weights = torch.randn(2, K, requires_grad=True), torch.rand(2, 2, requires_grad=True)
    assert [*layer.parameters()] == []
    layer(x, IDS, weights).sum().backward()
    assert (x.grad.shape, weights.grad.shape) == (x.shape, weights.shape)
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, IDS), layer(x, IDS))


def test_state_of_experts_becomes_that_of_others_and_of_nothing_else(tmp_path):
    layer, other = (nn.QuantExperts(experts_of("Q6_K", N, seed), "Q6_K") for seed in (0, 7))
    x = torch.randn(2, K)
    assert not torch.equal(other(x, IDS), layer(x, IDS))
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(x, IDS), layer(x, IDS))
    for changed in (nn.QuantExperts(experts_of("Q6_K", 2 * N), "Q6_K", gated=True), nn.QuantLinear(raw_of("Q6_K", N, K), "Q6_K")):
        before = changed.tiles.clone()
        with pytest.raises(FormatError, match=r"the state is of a layer with {'experts': 3"):
            changed.load_state_dict(layer.state_dict())
        assert torch.equal(changed.tiles, before)


def test_rows_that_are_no_experts_are_refused():
    with pytest.raises(ShapeError, match=r"raw is uint8 \[5, 144\]; experts have \[experts, rows, row_bytes\]"):
        nn.QuantExperts(raw_of("Q4_K", N, K), "Q4_K")
    with pytest.raises(FormatError, match="has no layout for GPUs"):
        nn.QuantExperts(experts_of("Q4_K", N), "Q9")
