"""`ops.quant_linear`: what it computes where no kernel runs, what it refuses, with gradients, and as an operator of torch under torch.compile."""

import warnings

import pytest
import torch
from support.quant import FORMATS, raw_of, weight
from torch.nn import functional

from lanewise import dispatch, ops
from lanewise.errors import DeviceError, FormatError, ShapeError
from lanewise.formats import get
from lanewise.kernels.gpu import quant
from lanewise.kernels.gpu.quant_pack import pack

M, N, K = 3, 5, 64
OP = torch.ops.lanewise.quant_linear.default
pytestmark = pytest.mark.filterwarnings("ignore:quant_linear expands")


def numbers(fmt, rows=N, k=K, seed=0):
    """The file's rows, and what they stand for."""
    raw = raw_of(fmt, rows, k, seed)
    return raw, torch.from_numpy(get(fmt).dequantize(raw.numpy()))


@pytest.mark.parametrize("fmt", FORMATS)
def test_without_a_kernel_it_is_torchs_linear_of_the_files_numbers(fmt):
    raw, w = numbers(fmt, 17, 512)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(2, M, 512).to(dtype)
        with dispatch.witness() as ran:
            assert torch.equal(ops.quant_linear(x, pack(raw, fmt)), functional.linear(x, w.to(dtype)))
        assert dict(ran) == {"quant_blas": 1}
    assert ops.quant_linear(x[0, 0], pack(raw, fmt)).shape == (17,)


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_every_fused_part_is_that_of_linear(wide):
    out, more = (torch.float32 if wide else None), (torch.float32 if wide else torch.bfloat16)
    x, norm = torch.randn(M, K).bfloat16(), torch.randn(K).bfloat16()
    for gated in (False, True):
        raw, w = numbers("Q5_1", 2 * N if gated else N)
        packed, w = pack(raw, "Q5_1", gated), w.bfloat16()
        residual = torch.randn(M, N).to(more)
        for bias in (None, torch.randn(len(w)).to(more), torch.randn(M, len(w)).to(more)):
            given = {"residual": residual, "norm": norm, "eps": 0.5, "out": out}
            assert torch.equal(ops.quant_linear(x, packed, bias, **given), ops.linear(x, w, bias, gated=gated, **given))


def test_x_may_have_any_strides_and_no_rows():
    w = weight("Q4_K", N, 512)
    x = torch.randn(M, 1024)[:, ::2]
    assert torch.equal(ops.quant_linear(x, w), ops.quant_linear(x.contiguous(), w))
    assert ops.quant_linear(x[:0], w).shape == (0, N)
    assert ops.quant_linear(torch.zeros(2, 0, 512), w, residual=torch.zeros(2, 0, N)).shape == (2, 0, N)
    empty = pack(torch.zeros(N, 0, dtype=torch.uint8), "Q8_0")
    assert torch.equal(ops.quant_linear(torch.zeros(M, 0), empty, torch.arange(5.0)), torch.arange(5.0).expand(M, N))
    assert ops.quant_linear(x, pack(torch.zeros(0, 288, dtype=torch.uint8), "Q4_K")).shape == (M, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": torch.zeros(N, K)}, "w is a Tensor; quant_linear takes a QuantWeight, which quant_pack.pack makes of a file's bytes"),
        ({"w": None}, "w is a NoneType; quant_linear takes a QuantWeight"),
        ({"x": [1.0]}, "x is a list; quant_linear takes torch tensors"),
        ({"x": None}, "x is a NoneType; quant_linear takes torch tensors"),
        ({"bias": 1.0}, "bias is a float"),
        ({"x": torch.zeros(M, K + 1)}, r"x is \[3, 65\] and w Q8_0 \[5, 64\]; they have to be \[..., k\] and \[n, k\] with one k"),
        ({"x": torch.zeros(())}, r"x is \[\] and w Q8_0"),
        ({"x": torch.zeros(M, K).double()}, "unknown dtype 'float64'; known dtypes: f32, f16, bf16"),
        ({"x": torch.zeros(M, K).int()}, "unknown dtype 'int32'"),
        ({"bias": torch.zeros(N + 1)}, r"bias is \[6\]; it has to be \[5\] or \[3, 5\]"),
        ({"bias": torch.zeros(N).half()}, "bias is torch.float16; it has to be torch.float32 like x"),
        ({"w": weight(gated=True), "bias": torch.zeros(N)}, r"bias is \[5\]; it has to be \[10\] or \[3, 10\]"),
        ({"residual": torch.zeros(N)}, r"residual is \[5\]; it has to be \[3, 5\]"),
        ({"residual": torch.zeros(M, N).bfloat16()}, "residual is torch.bfloat16; it has to be torch.float32 like x"),
        ({"norm": torch.zeros(1)}, r"norm is \[1\]; it has to be \[64\]"),
        ({"out": torch.bfloat16}, "out is torch.bfloat16; y is torch.float32 like x, or torch.float32"),
        ({"x": torch.zeros(M, K).to_sparse()}, "x is laid out as torch.sparse_coo; quant_linear takes strided tensors"),
        ({"w": pack(torch.zeros(2, N, 68, dtype=torch.uint8), "Q8_0")}, "w has 2 experts; quant_linear multiplies by one weight"),
        ({"w": pack(torch.zeros(0, N, 68, dtype=torch.uint8), "Q8_0")}, "w has 0 experts; quant_linear multiplies by one weight"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_operands_that_do_not_fit_are_refused_in_one_line(change, words):
    with pytest.raises(ShapeError, match=words) as caught:
        ops.quant_linear(**{"x": torch.zeros(M, K), "w": weight(), **change})
    assert "\n" not in str(caught.value)


def test_operands_on_two_devices_are_refused():
    for name, size in (("bias", (N,)), ("residual", (M, N)), ("norm", (K,))):
        with pytest.raises(DeviceError, match=f"{name} is on meta and x on cpu"):
            ops.quant_linear(torch.zeros(M, K), weight(), **{name: torch.zeros(size, device="meta")})
    w = weight()
    with pytest.raises(DeviceError, match="w is on meta and x on cpu"):
        OP(torch.zeros(M, K), w.tiles.to("meta"), w.format, N, K)


@pytest.mark.parametrize(
    ("change", "error"),
    [({"format": "F16"}, FormatError), ({"format": "Q9"}, FormatError), ({"n": 17}, ShapeError), ({"k": 65}, ShapeError), ({"gated": True}, None)],
    ids=str,
)
def test_the_operator_refuses_tiles_that_are_not_those_of_its_numbers(change, error):
    w = weight(n=17 if error is None else N)
    given = {"format": w.format, "n": w.n, "k": w.k, "gated": False, **change}
    with pytest.raises(error or ShapeError, match=r"Q8_0|F16|Q9"):
        OP(torch.zeros(M, K), w.tiles, *given.values())


def test_gradients_are_those_of_torchs_functions_and_w_has_none():
    raw, w = numbers("Q4_1", 2 * N)
    packed = pack(raw, "Q4_1", gated=True)
    given = torch.randn(M, K), torch.randn(K), torch.randn(2 * N), torch.randn(M, N)

    def grads(f):
        leaves = [t.clone().requires_grad_() for t in given]
        f(*leaves).square().sum().backward()
        return [t.grad for t in leaves]

    want = grads(lambda x, norm, bias, residual: ops.linear(x, w, bias, residual=residual, norm=norm, gated=True))
    named = (packed.tiles, "Q4_1", N, K, True)
    for f in (
        lambda x, norm, bias, residual: ops.quant_linear(x, packed, bias, residual=residual, norm=norm),
        lambda x, norm, bias, residual: OP(x, *named, bias, residual, norm),
    ):
        with dispatch.witness() as ran:
            assert all(map(torch.equal, grads(f), want))
        assert dict(ran) == {"quant_blas": 1}
    with torch.no_grad():
        assert not ops.quant_linear(given[0].requires_grad_(), packed).requires_grad


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_compiled_graph_really_calls_the_op(dynamic):
    w, norm = weight("Q6_K", N, 256), torch.randn(256)

    @torch.compile(fullgraph=True, dynamic=dynamic, backend="aot_eager")
    def layer(x, residual):
        return ops.quant_linear(x + 1, w, residual=residual, norm=norm) * 2

    for m in (M, 2, 1):
        x, residual = torch.randn(m, 256), torch.randn(m, N)
        with dispatch.witness() as ran:
            got = layer(x, residual)
        assert dict(ran) == {"quant_blas": 1}
        assert torch.equal(got, ops.quant_linear(x + 1, w, residual=residual, norm=norm) * 2)
    layer(x.requires_grad_(), residual).sum().backward()
    assert x.grad.shape == (1, 256)


def test_a_graph_of_what_does_not_fit_is_refused_in_words():
    w = weight()
    with pytest.raises(Exception, match=r"x is \[3, 32\] and w Q8_0 \[5, 64\]"):
        torch.compile(lambda x: ops.quant_linear(x, w), fullgraph=True, backend="eager")(torch.zeros(M, 32))


@pytest.mark.parametrize(
    "more",
    [{}, {"bias": torch.randn(N)}, {"norm": torch.randn(K), "residual": torch.randn(M, N), "constant_w": True}],
    ids=["plain", "bias", "norm and residual"],
)
def test_torchs_own_check_of_operators_passes(more):
    w = weight()
    torch.library.opcheck(OP, (torch.randn(M, K), w.tiles, w.format, N, K), more)


def test_shapes_are_known_without_data():
    w = weight("Q4_K", N, 256, gated=True)
    y = OP(torch.empty(2, M, 256, device="meta"), w.tiles.to("meta"), "Q4_K", N, 256, True, out=torch.float32)
    assert (y.device.type, y.shape, y.dtype) == ("meta", (2, M, N), torch.float32)


def test_that_weights_are_expanded_is_said_once_for_a_format(monkeypatch):
    monkeypatch.setattr(quant, "_EXPANDED", set())
    x = torch.zeros(M, 256)
    for fmt in ("Q8_0", "Q4_K"):
        with pytest.warns(UserWarning, match=f"quant_linear expands {fmt} weights to f32 at every call on .* is no GPU of AMD or NVIDIA") as said:
            ops.quant_linear(x, weight(fmt, k=256))
        assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for w in (weight("Q8_0", 7, 256), weight("Q4_K", k=256)):
            ops.quant_linear(x, w)


def test_where_the_warning_is_an_error_each_call_fails_and_not_the_first_alone(monkeypatch):
    monkeypatch.setattr(quant, "_EXPANDED", set())
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="quant_linear expands"):
                ops.quant_linear(torch.zeros(1, 256), weight("Q4_K", N, 256))
