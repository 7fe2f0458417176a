"""tl.dot of every type that Triton takes, in tiles of several sizes, by one to eight warps, in loops that are pipelined or not."""

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from . import APPROXIMATED, exact, family, near, numbers

CASES, case = family()


@triton.jit
def _product(
    x, w, y, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, TURNED: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), ACC)
    for start in tl.range(0, k, BK, num_stages=STAGES):
        at = start + inner
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row[:, None] < m) & (at[None, :] < k), other=0.0)
        if TURNED:
            b = tl.load(w + column[None, :] * k + at[:, None], mask=(column[None, :] < n) & (at[:, None] < k), other=0.0)
        else:
            b = tl.load(w + at[:, None] * n + column[None, :], mask=(column[None, :] < n) & (at[:, None] < k), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=ACC)
    tl.store(y + row[:, None] * n + column[None, :], total.to(y.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


def _whole(shape: Any, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small integers: every sum of their products is exact in any order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _run(
    x: torch.Tensor, w: torch.Tensor, block: tuple[int, int, int], warps: int = 4, stages: int = 1, precision: str = "ieee", turned: bool = False,
    out: torch.dtype = torch.float32, acc: Any = tl.float32, **options: Any,
) -> torch.Tensor:  # fmt: skip
    (m, k), n = x.shape, w.shape[0 if turned else 1]
    y = torch.empty(m, n, dtype=out)
    grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]))
    _product[grid](x, w, y, m, n, k, *block, precision, stages, turned, acc, num_warps=warps, num_stages=stages, **options)
    return y


SHAPES = (((16, 16, 16), 1, 1), ((32, 32, 32), 4, 2), ((64, 32, 64), 4, 3), ((32, 64, 32), 2, 1), ((128, 64, 32), 8, 2))


def _exactly(dtype: torch.dtype, turned: bool = False, shapes: Any = SHAPES, **options: Any) -> None:
    for number, (block, warps, stages) in enumerate(shapes):
        m, n, k = block[0] + 3, block[1] + 5, 3 * block[2] - 8 * (number % 2)
        x, w = _whole((m, k), dtype, number), _whole((n, k) if turned else (k, n), dtype, number + 9)
        b = w.t() if turned else w
        exact(_run(x, w, block, warps, stages, turned=turned, **options) + 0.0, x.double() @ b.double())


@case
def products_of_halves(row: Any) -> None:
    _exactly(torch.float16, shapes=SHAPES[:4])


@case
def products_of_turned_halves(row: Any) -> None:
    _exactly(torch.float16, turned=True)


@case
def products_of_bfloats(row: Any) -> None:
    _exactly(torch.bfloat16, turned=True, shapes=SHAPES[1:])


@case
def products_of_floats(row: Any) -> None:
    _exactly(torch.float32, shapes=SHAPES[:2])


@case
def products_of_random_halves(row: Any) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x, w = numbers((33, 136), dtype, 1), numbers((136, 40), dtype, 2)
        a, b = x.double(), w.double()
        near(_run(x, w, (32, 32, 32), 4, 2), a @ b, APPROXIMATED, a.abs() @ b.abs())


@case
def products_of_random_floats(row: Any) -> None:
    x, w = numbers((33, 72), torch.float32, 1), numbers((72, 40), torch.float32, 2)
    a, b = x.double(), w.double()
    near(_run(x, w, (32, 32, 32), 4, 2), a @ b, APPROXIMATED, a.abs() @ b.abs())


_TF32 = 2.0**-10 / 2.0**-23  # units of the last place of float32 in one of a factor of ten bits of fraction


@case
def products_of_floats_with_fewer_bits(row: Any) -> None:
    """Triton takes tf32 where the target has a matrix unit for it."""
    x, w = numbers((32, 64), torch.float32, 1), numbers((64, 32), torch.float32, 2)
    a, b = x.double(), w.double()
    if not row.negative_zero_is_nan:  # the one generation that has one is MI300
        with pytest.raises(CompilationError):
            _run(x, w, (32, 32, 32), 4, 1, "tf32")
        return
    near(_run(x, w, (32, 32, 32), 4, 1, "tf32"), a @ b, APPROXIMATED + 2 * _TF32, a.abs() @ b.abs())


@case
def products_of_doubles(row: Any) -> None:
    x, w = _whole((19, 40), torch.float64, 1), _whole((40, 21), torch.float64, 2)
    exact(_run(x, w, (16, 16, 16), 2, 1, out=torch.float64, acc=tl.float64) + 0.0, x @ w)


@case
def products_of_bytes(row: Any) -> None:
    for number, (block, warps, stages) in enumerate(SHAPES):
        if block[2] < 32 and row.matrix == "mfma":
            block = (*block[:2], 32)
        m, n, k = block[0] + 3, block[1] + 5, 2 * block[2] + 16
        x, w = numbers((m, k), torch.int8, number), numbers((n, k), torch.int8, number + 5)
        got = _run(x, w, block, warps, stages, turned=True, out=torch.int32, acc=tl.int32)
        exact(got, (x.long() @ w.long().t()).int())


@case
def products_of_extreme_bytes(row: Any) -> None:
    x, w = torch.full((16, 96), -128, dtype=torch.int8), torch.full((16, 96), -128, dtype=torch.int8)
    w[::2] = 127
    exact(_run(x, w, (16, 16, 32), 1, 1, turned=True, out=torch.int32, acc=tl.int32), (x.long() @ w.long().t()).int())


@case
def halves_added_in_halves(row: Any) -> None:
    x, w = _whole((32, 64), torch.float16, 1), _whole((64, 32), torch.float16, 2)
    exact(_run(x, w, (32, 32, 32), 4, 1, out=torch.float16, acc=tl.float16) + 0.0, (x.double() @ w.double()).half())


@triton.jit
def _batched(x, w, y, B: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    batch, row, inner = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + batch * (M * K) + row[None, :, None] * K + inner[None, None, :])
    b = tl.load(w + batch * (M * K) + inner[None, :, None] * M + row[None, None, :])
    tl.store(y + batch * (M * M) + row[None, :, None] * M + row[None, None, :], tl.dot(a, b))


@case
def products_in_batches(row: Any) -> None:
    x, w = _whole((4, 16, 32), torch.float16, 1), _whole((4, 32, 16), torch.float16, 2)
    y = torch.empty(4, 16, 16)
    _batched[(1,)](x, w, y, 4, 16, 32, num_warps=4)
    exact(y + 0.0, x.double() @ w.double())


@triton.jit
def _attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row, column, feature = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    query = tl.load(q + row[:, None] * D + feature[None, :], mask=row[:, None] < n, other=0.0)
    high, total = tl.full([BM], float("-inf"), tl.float32), tl.zeros([BM], tl.float32)
    result = tl.zeros([BM, D], tl.float32)
    for start in range(0, n, BN):
        at = start + column
        key = tl.load(k + at[None, :] * D + feature[:, None], mask=at[None, :] < n, other=0.0)
        score = tl.where((at[None, :] < n) & (at[None, :] <= row[:, None]), tl.dot(query, key) * scale, float("-inf"))
        new = tl.maximum(high, tl.max(score, 1))
        weight, shrunk = tl.exp(score - new[:, None]), tl.exp(high - new)
        total = total * shrunk + tl.sum(weight, 1)
        value = tl.load(v + at[:, None] * D + feature[None, :], mask=at[:, None] < n, other=0.0)
        result = tl.dot(weight.to(value.dtype), value, result * shrunk[:, None])
        high = new
    tl.store(out + row[:, None] * D + feature[None, :], result / total[:, None], mask=row[:, None] < n)


_HALF = 2.0**-10 / 2.0**-23  # units of the last place of float32 in one of float16, which the weights are rounded to


@case
def attention(row: Any) -> None:
    n, d = 70, 32
    q, k, v = (numbers((n, d), torch.float16, seed) for seed in range(3))
    out = torch.empty(n, d)
    _attention[(3,)](q, k, v, out, n, d**-0.5, 32, 32, d, num_warps=4)
    score = (q.double() @ k.double().t() * d**-0.5).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
    weight = score.softmax(1)
    near(out, weight @ v.double(), APPROXIMATED * _HALF, (weight @ v.double().abs()))


@triton.jit
def _eighth(x, w, y, M: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr):
    row, inner = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + row[:, None] * K + inner[None, :]).to(KIND, bitcast=True)
    b = tl.load(w + row[None, :] * K + inner[:, None]).to(KIND, bitcast=True)
    tl.store(y + row[:, None] * M + row[None, :], tl.dot(a, b))


def _eighths(kind: Any, dtype: torch.dtype) -> None:
    x, w = (_whole((32, 64), torch.float32, seed).to(dtype) for seed in (1, 2))
    y = torch.empty(32, 32)
    _eighth[(1,)](x.view(torch.uint8), w.view(torch.uint8), y, 32, 64, kind)
    exact(y + 0.0, x.double() @ w.double().t())


@case(first=("gfx942", "gfx950"))
def products_of_floats_of_8_bits(row: Any) -> None:
    _eighths(tl.float8e5, torch.float8_e5m2)


@case(first=("gfx942", "gfx950"))
def products_of_floats_of_8_bits_with_four_of_exponent(row: Any) -> None:
    _eighths(tl.float8e4nv, torch.float8_e4m3fn)


@case(first=("gfx942", "gfx950"))
def products_of_floats_of_8_bits_of_the_older_kind(row: Any) -> None:
    """Triton has these for one target alone."""
    if row.name == "gfx942":
        _eighths(tl.float8e4b8, torch.float8_e4m3fnuz)
        _eighths(tl.float8e5b16, torch.float8_e5m2fnuz)
