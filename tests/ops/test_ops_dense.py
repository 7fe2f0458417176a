"""`ops.linear`: what it computes, what it refuses, with gradients, and as an operator of torch under torch.compile."""

import subprocess
import sys

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad
from torch.nn import functional

from lanewise import dispatch, ops
from lanewise.errors import DeviceError, ShapeError

M, N, K = 3, 5, 8
OP = torch.ops.lanewise.linear.default


def whole(*shape, dtype=torch.bfloat16, seed=0):
    """Small whole numbers: products and sums of them are exact, in any order and in every type here."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(dtype=torch.bfloat16):
    return whole(M, K, dtype=dtype), whole(N, K, dtype=dtype, seed=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_product_alone_is_torchs_own(dtype):
    x, w = torch.randn(2, M, K, dtype=dtype), torch.randn(N, K, dtype=dtype)
    for bias in (None, torch.randn(N, dtype=dtype)):
        with dispatch.witness() as ran:
            assert torch.equal(ops.linear(x, w, bias), functional.linear(x, w, bias))
        assert dict(ran) == {"blas": 1}
    assert ops.linear(x[0, 0], w).shape == (N,)


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_every_fused_part_is_what_the_chain_of_single_functions_gives(wide):
    x, w = operands()
    out, more = (torch.float32 if wide else None), (torch.float32 if wide else x.dtype)
    bias, residual = whole(M, N, dtype=more, seed=2), whole(M, N, dtype=more, seed=3)
    plain = (x.float() @ w.float().T).to(more)
    assert torch.equal(ops.linear(x, w, out=out), plain)
    assert torch.equal(ops.linear(x, w, bias, out=out), plain + bias)
    assert torch.equal(ops.linear(x, w, bias[0], residual=residual, out=out), plain + bias[0] + residual)
    normed = functional.rms_norm(x, (K,), whole(K, seed=4), 1e-5)
    got = ops.linear(x, w, norm=whole(K, seed=4), eps=1e-5, out=out)
    assert torch.equal(got, ops.linear(normed, w, out=out))
    assert torch.equal(got, ops.linear(x, w, norm=whole(K, seed=4, dtype=torch.float32), eps=1e-5, out=out))
    both = torch.cat([w, whole(N, K, seed=5)])
    up = (x.float() @ both[N:].float().T).to(more)
    assert torch.equal(ops.linear(x, both, gated=True, out=out), functional.silu(plain) * up)
    assert ops.linear(x, both, gated=True, residual=residual, out=out).dtype is more


def test_product_and_bias_are_rounded_together():
    """257 is between two bfloat16: rounded alone it becomes 256, and the 1 is lost as well."""
    x, w = torch.ones(1, 257, dtype=torch.bfloat16), torch.ones(1, 257, dtype=torch.bfloat16)
    for bias in (torch.ones(1), torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bfloat16)):
        assert ops.linear(x, w, bias).item() == 258


def test_operands_of_any_strides_are_right():
    x, w = operands()
    want = ops.linear(x, w, whole(N, seed=2))
    padded = torch.full((N, K + 3), float("nan"), dtype=w.dtype)
    padded[:, :K] = w
    transposed, sparse = w.T.contiguous().T, torch.zeros(M, 2 * K, dtype=x.dtype)
    sparse[:, ::2] = x
    for a, b in ((x, padded[:, :K]), (x, transposed), (sparse[:, ::2], w), (x.T.contiguous().T, transposed)):
        assert torch.equal(ops.linear(a, b, whole(N, seed=2)), want)
    one = x[:1].expand(M, K)
    assert torch.equal(ops.linear(one, w, whole(1, seed=2).expand(N)), ops.linear(one.contiguous(), w, whole(1, seed=2).expand(N).contiguous()))
    cube = whole(4, M, K).transpose(0, 1)
    assert torch.equal(ops.linear(cube, w, residual=whole(M, 4, N)), ops.linear(cube.contiguous(), w, residual=whole(M, 4, N)))


def test_products_of_nothing_have_their_shape_and_no_k_leaves_the_bias():
    for x, w in (((0, K), (N, K)), ((M, K), (0, K)), ((2, 0, K), (N, K))):
        y = ops.linear(torch.zeros(x), torch.zeros(w), norm=torch.ones(K))
        assert y.shape == (*x[:-1], w[0])
    assert torch.equal(ops.linear(torch.zeros(M, 0), torch.zeros(N, 0), torch.arange(5.0), norm=torch.ones(0)), torch.arange(5.0).expand(M, N))
    assert not ops.linear(torch.zeros(M, 0), torch.zeros(N, 0)).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": [1.0]}, "x is a list; linear takes torch tensors"),
        ({"w": None}, "w is a NoneType"),
        ({"bias": 1.0}, "bias is a float"),
        ({"x": torch.zeros(M, K + 1)}, r"x is \[3, 9\] and w \[5, 8\]"),
        ({"w": torch.zeros(K)}, r"w \[8\]; they have to be"),
        ({"x": torch.zeros(())}, r"x is \[\] and w"),
        ({"x": torch.zeros(M, K, dtype=torch.float16)}, "x is torch.float16 and w torch.float32"),
        ({"x": torch.zeros(M, K).double(), "w": torch.zeros(N, K).double()}, "unknown dtype 'float64'; known dtypes: f32, f16, bf16"),
        ({"x": torch.zeros(M, K).int(), "w": torch.zeros(N, K).int()}, "unknown dtype 'int32'"),
        ({"bias": torch.zeros(N + 1)}, r"bias is \[6\]; it has to be \[5\] or \[3, 5\]"),
        ({"bias": torch.zeros(1, N)}, r"bias is \[1, 5\]; it has to be"),
        ({"bias": torch.zeros(N).half()}, "bias is torch.float16; it has to be torch.float32 like x"),
        ({"residual": torch.zeros(N)}, r"residual is \[5\]; it has to be \[3, 5\]"),
        ({"norm": torch.zeros(1)}, r"norm is \[1\]; it has to be \[8\]"),
        ({"norm": torch.zeros(M, K)}, r"norm is \[3, 8\]; it has to be \[8\]$"),
        ({"gated": True}, r"w is \[5, 8\]; a gated w has as many rows"),
        ({"out": torch.bfloat16}, "out is torch.bfloat16; y is torch.float32 like x, or torch.float32"),
        ({"w": torch.zeros(N, K).to_sparse()}, "w is laid out as torch.sparse_coo"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_operands_that_do_not_fit_are_refused_in_one_line(change, words):
    with pytest.raises(ShapeError, match=words) as caught:
        ops.linear(**{"x": torch.zeros(M, K), "w": torch.zeros(N, K), **change})
    assert "\n" not in str(caught.value)


def test_operands_on_two_devices_are_refused():
    for name, t in (("w", torch.zeros(N, K, device="meta")), ("bias", torch.zeros(N, device="meta"))):
        with pytest.raises(DeviceError, match=f"{name} is on meta and x on cpu"):
            ops.linear(**{"x": torch.zeros(M, K), "w": torch.zeros(N, K), name: t})


def test_gradients_are_those_of_the_chain_and_blas_is_what_ran():
    def loss(f, *given):
        leaves = [t.clone().requires_grad_() for t in given]
        f(*leaves).square().sum().backward()
        return [t.grad for t in leaves]

    def unfused(x, w, norm, bias, residual):
        y = functional.linear(functional.rms_norm(x, (K,), norm, 1e-6), w, bias)
        return functional.silu(y[:, :N]) * y[:, N:] + residual

    given = torch.randn(M, K), torch.randn(2 * N, K), torch.randn(K), torch.randn(2 * N), torch.randn(M, N)
    want = loss(unfused, *given)
    for linear in (ops.linear, OP):
        with dispatch.witness() as ran:
            got = loss(lambda x, w, norm, bias, residual, linear=linear: linear(x, w, bias, residual=residual, norm=norm, gated=True), *given)
        assert dict(ran) == {"blas": 1}
        assert all(map(torch.equal, got, want))
    x, w = (t.requires_grad_() for t in (torch.randn(M, K).half(), torch.randn(N, K).half()))
    ops.linear(x, w, out=torch.float32).sum().backward()
    assert torch.equal(w.grad, x.sum(0, dtype=torch.float32).half().expand(N, K))


@pytest.mark.parametrize("linear", [ops.linear, OP], ids=["function", "operator"])
def test_forward_gradients_and_those_of_functions_are_right_too(linear):
    x, w, direction = torch.randn(M, K), torch.randn(N, K), torch.randn(M, K)
    assert torch.equal(torch.func.jvp(lambda x: linear(x, w), (x,), (direction,))[1], functional.linear(direction, w))
    with forward_ad.dual_level(), torch.no_grad():
        assert torch.equal(forward_ad.unpack_dual(linear(forward_ad.make_dual(x, direction), w)).tangent, functional.linear(direction, w))
    assert torch.equal(torch.func.grad(lambda w: linear(x, w).sum())(w), x.sum(0).expand(N, K))


def test_without_grad_nothing_asks_for_one():
    x, w = torch.randn(M, K), torch.nn.Parameter(torch.randn(N, K))
    assert ops.linear(x, w).requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not ops.linear(x, w).requires_grad


def test_autocast_leaves_the_types_that_were_given():
    x, w = operands()
    with torch.autocast("cpu", torch.float16):
        assert ops.linear(x, w, out=torch.float32).dtype is torch.float32
        assert ops.linear(x, w).dtype is torch.bfloat16


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_compiled_graph_really_calls_the_op(dynamic):
    x, w = operands()
    norm, residual = whole(K, seed=4), whole(M, N, seed=3)

    @torch.compile(fullgraph=True, dynamic=dynamic, backend="aot_eager")
    def layer(x, residual):
        return ops.linear(x + 1, w, residual=residual, norm=norm, out=torch.float32) * 2

    for m in (M, 2, 1):
        with dispatch.witness() as ran:
            got = layer(x[:m], residual[:m])
        assert dict(ran) == {"blas": 1}
        assert torch.equal(got, ops.linear(x[:m] + 1, w, residual=residual[:m], norm=norm, out=torch.float32) * 2)


def test_a_graph_for_any_number_of_rows_is_compiled_once_for_all_of_them():
    w = whole(N, K)

    def layer(x, bias, residual):
        return ops.linear(x, w, bias, residual=residual)

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for m in (2, 3, 4, 7, 9):
        for bias in (whole(N), whole(m, N)):
            x, residual = whole(m, K), whole(m, N)
            assert torch.equal(compiled(x, bias, residual), layer(x, bias, residual))
    assert counter.frame_count == 2


def test_a_compiled_graph_has_gradients():
    x, w = torch.randn(M, K), torch.nn.Parameter(torch.randn(N, K))
    torch.compile(lambda x: ops.linear(x, w), fullgraph=True, backend="aot_eager")(x).sum().backward()
    assert torch.equal(w.grad, torch.ones(M, N).T @ x)


def test_a_graph_of_what_does_not_fit_is_refused_in_words():
    layer = torch.compile(ops.linear, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"x is \[3, 8\] and w \[5, 7\]"):
        layer(torch.zeros(M, K), torch.zeros(N, 7))


@pytest.mark.parametrize(
    "more",
    [{}, {"bias": whole(N)}, {"norm": whole(K), "residual": whole(M, N)}, {"out": torch.float32, "constant_w": True}],
    ids=["plain", "bias", "norm", "wide"],
)
def test_torchs_own_check_of_operators_passes(more):
    torch.library.opcheck(OP, operands(), more)
    torch.library.opcheck(OP, (whole(2, M, K), whole(2 * N, K)), {"gated": True})


def test_shapes_are_known_without_data():
    y = ops.linear(torch.empty(2, M, K, device="meta"), torch.empty(2 * N, K, device="meta"), gated=True)
    assert (y.device.type, y.shape) == ("meta", (2, M, N))
    assert ops.linear(torch.empty(M, K, device="meta"), torch.empty(N, K, device="meta", requires_grad=True)).shape == (M, N)


def test_without_torch_it_says_so_and_explain_still_answers():
    hidden = "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
    for code, words in (
        ("from lanewise.errors import DeviceError\ntry:\n    import lanewise.ops\nexcept DeviceError as e: print(e)", "torch is not installed"),
        ("from lanewise.cli import app\napp(['explain', 'linear', '--arch', sys.argv[1], '--dtype', 'bf16'])", "skinny (gpu) runs"),
        ("import lanewise; lanewise.patch", "torch is not installed"),
    ):
        done = subprocess.run([sys.executable, "-c", hidden + code, "gfx1100"], capture_output=True, text=True, check=False, timeout=120)
        assert words in done.stdout + done.stderr
