"""Activations as int8 on a GPU: x[m,k] by the definition in `formats/activations.py`, bit for bit, in the order that quantized kernels read.

One program has some blocks of 256 columns of one token: a block or two a wave where there are few, so that each lane waits once for memory. With
`norm` the token's RMSNorm stands in front; every program of a token then adds up the whole row, in an order that k and the alignment of rows
decide, and m does not.

What the bits rely on: NaN and Inf are told by their bits, as what a maximum does with NaN differs between targets; both divisions are correctly
rounded ones; and 1.5 * 2^23 is added to the product x * inverse, |.| < 2^22, which rounds it to a whole number, halves to even, and leaves that
in the sum's lower bits. Product and sum must stay two instructions. That the launch forbids to fuse them is not enough: for sm_120 Triton's own
ptxas makes one FFMA of `mul.rn.f32x2` and `add.rn.f32x2`, with --fmad=false. So a minimum stands between them.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.arch import Arch
from lanewise.errors import FormatError, ShapeError

__all__ = ["Activations", "act_quant", "plain"]

_BLOCK = 256  # columns that lie together, whatever shares a scale
_GROUPS = {"q8_0": 32, "q8_k": _BLOCK}
_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_LANES = 32  # that share a block; in a larger program each has columns of two
_MANY = 1024  # blocks in all, from which on a program takes _TOGETHER
_TOGETHER = 8
_NORMED = 16  # blocks of a program at most where the norm stands in front: a row of 4096 is read once

_ROUND = tl.constexpr(1.5 * 2**23)
_ROUND_BITS = tl.constexpr(0x4B400000)
_INF_BITS = tl.constexpr(0x7F800000)
_NAN_BITS = tl.constexpr(0x7FC00000)
_ZERO_BELOW_BITS = tl.constexpr((127 - 118) << 23)  # 2^-118


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """x[m,k] as int8, in blocks of 256 columns; blocks = ceil(k/256). Column k = 256b + 32u + 16p + 4c + j: u 0..7, p 0..1, c 0..3, j 0..3.

    kind: "q8_0" (a scale for 32 columns) or "q8_k" (for 256)
    Tokens go by eight, token = 8o + r, as a matrix unit takes them; nothing is written for tokens from m on.

    q:    int32[ceil(m/8), blocks, 4, 8, 4, 4], indexed [o, b, u//2, r, c, 2 (u%2) + p]: the q of j = 0..3, j = 0 lowest; zero from column k on
    d:    float32; q8_0: [ceil(m/8), blocks, 4, 8, 2], indexed [o, b, u//2, r, u%2], zero from column k on; q8_k: [ceil(m/8), blocks, 8]
    sums: q8_0: float32 like d: d times the sum of the 32 q, rounded once; q8_k: int32[ceil(m/8), blocks, 3, 8, 4], two int16 a word, the first in
          the lower half: [o, b, 0, r] sums of 32 q (u), [o, b, 1 and 2, r] sums of 16 (2u + p). Zero where d is NaN
    """

    kind: str
    m: int
    k: int
    q: torch.Tensor
    d: torch.Tensor
    sums: torch.Tensor


def act_quant(
    x: torch.Tensor, kind: str, *, norm: torch.Tensor | None = None, eps: float = 1e-6, rows: torch.Tensor | None = None, arch: Arch
) -> Activations:
    """x[m,k] of bfloat16, float16 or float32, with an inner stride of 1 and any between rows, as `Activations`; memory apart, nothing is kept.

    norm: float[k], RMSNorm with this weight in front, rounded to x's type as the chain of single ops rounds it.
    rows: int32[m'], m' tokens which row of x each of them is, or -1 where nothing is written; whoever made them saw to it that there are such rows.
    Raises FormatError for a kind that there is not, or a k that is not a whole number of its groups, and ShapeError for what else does not fit.
    """
    _require(x, kind, norm, rows)
    m, k = x.shape if rows is None else (rows.shape[0], x.shape[1])
    blocks = triton.cdiv(k, _BLOCK)
    octets = triton.cdiv(m, 8)
    small = kind == "q8_0"
    q = _new((octets, blocks, 4, 8, 4, 4), torch.int32, x.device)
    d = _new((octets, blocks, 4, 8, 2) if small else (octets, blocks, 8), torch.float32, x.device)
    sums = _new(d.shape if small else (octets, blocks, 3, 8, 4), torch.float32 if small else torch.int32, x.device)
    made = Activations(kind, m, k, q, d, sums)
    if m == 0 or k == 0:
        return made
    least = max(1, arch.wave // _LANES)
    most = _NORMED if norm is not None else _TOGETHER if m * blocks >= _MANY else least
    each = max(least, min(triton.next_power_of_2(blocks), most))
    parts = triton.cdiv(blocks, each)
    pdl = arch.pdl and not triton.knobs.runtime.interpret
    late: dict[str, Any] = {"launch_pdl": True} if pdl else {}
    _quantize[(m, parts)](
        x, x if norm is None else norm, q if rows is None else rows, q, d, sums if small else sums.view(torch.int16), k, blocks,
        x.stride(0) if x.shape[0] > 1 else 0, eps, EACH=each, SMALL=small, WHOLE=parts * each * _BLOCK == k, NORM=norm is not None,
        ROWS=rows is not None, ONCE=parts == 1, PDL=pdl,
        num_warps=max(1, each * _LANES // 2 // arch.wave), enable_fp_fusion=False, **late,
    )  # fmt: skip
    return made


def plain(a: Activations) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(q int8[m,k], d float32[m, groups], sums) in the order of columns: sums float32[m, k/32] of q8_0, int16[m, k/16] of q8_k."""
    octets, blocks, m = a.q.shape[0], a.q.shape[1], a.m
    q = a.q.view(torch.int8).reshape(octets, blocks, 4, 8, 4, 2, 2, 4).permute(0, 3, 1, 2, 5, 6, 4, 7).reshape(8 * octets, blocks * _BLOCK)
    if a.kind == "q8_0":
        d, sums = (one.permute(0, 3, 1, 2, 4).reshape(8 * octets, blocks * 8)[:m, : a.k // 32] for one in (a.d, a.sums))
        return q[:m, : a.k], d, sums
    sixteen = a.sums.view(torch.int16)[:, :, 1:].permute(0, 3, 1, 2, 4).reshape(8 * octets, blocks * 16)
    return q[:m], a.d.permute(0, 2, 1).reshape(8 * octets, blocks)[:m], sixteen[:m]


def _require(x: torch.Tensor, kind: str, norm: torch.Tensor | None, rows: torch.Tensor | None) -> None:
    if kind not in _GROUPS:
        raise FormatError(f"activations of kind {kind!r}; there are {' and '.join(_GROUPS)}")
    if x.dim() != 2 or x.dtype not in _TYPES:
        raise ShapeError(f"{kind}: x is {x.dtype}{list(x.shape)}; it must be [m, k] of bfloat16, float16 or float32")
    k = x.shape[1]
    if k % _GROUPS[kind]:
        raise FormatError(f"{kind}: k={k} is not a whole number of groups of {_GROUPS[kind]}")
    if k > 1 and x.stride(1) != 1:
        raise ShapeError(f"{kind}: neighbours in a row of x lie {x.stride(1)} elements apart; they must lie side by side")
    if rows is not None and (rows.dim() != 1 or rows.dtype != torch.int32 or not rows.is_contiguous()):
        raise ShapeError(
            f"{kind}: rows are {rows.dtype}{list(rows.shape)} with strides {list(rows.stride())}; they must be int32, one for each token"
        )
    if norm is None:
        return
    if norm.shape != (k,) or norm.dtype not in _TYPES or (k > 1 and norm.stride(0) != 1):
        given = f"{norm.dtype}{list(norm.shape)} with strides {list(norm.stride())}"
        raise ShapeError(f"{kind}: norm is {given}; it must be [{k}] of bfloat16, float16 or float32, without gaps")


def _new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a result; a test puts its own in the place of this, with bands around it."""
    return torch.empty(shape, dtype=dtype, device=device)


@triton.jit
def _load(at, columns, k, WHOLE: tl.constexpr):
    """What stands at these columns, zero from k on."""
    if WHOLE:
        value = tl.load(at + columns)
    else:
        value = tl.load(at + columns, mask=columns < k, other=0.0)
    return value


@triton.jit
def _normed(x_at, norm, columns, first, k, eps, EACH: tl.constexpr, WHOLE: tl.constexpr, ONCE: tl.constexpr):
    """This program's columns of RMSNorm(x) * norm, rounded to x's type. `first` are the columns of a token's first program."""
    tile = _load(x_at, columns, k, WHOLE)
    weight = _load(norm, columns, k, WHOLE).to(tl.float32)
    value = tile.to(tl.float32)
    if ONCE:
        squares = value * value
    else:
        squares = tl.zeros(columns.shape, tl.float32)
        for start in tl.range(0, k, EACH * 256):
            other = _load(x_at, first + start, k, WHOLE).to(tl.float32)
            squares += other * other
    mean = tl.div_rn(tl.sum(squares), tl.cast(k, tl.float32))
    normed = (value * tl.rsqrt(mean + eps) * weight).to(tile.dtype)
    # outside x is zero, and times an infinite scale it would be NaN
    return normed if WHOLE else tl.where(columns < k, normed, tile)


@triton.jit
def _whole(part, SMALL: tl.constexpr):
    """The bits of the largest |x| of each group, from those of the words of a lane: [u, 1, block, 1, 1], or with u = 1 too."""
    most = tl.max(tl.max(part, 3, keep_dims=True), 1, keep_dims=True)
    return most if SMALL else tl.max(most, 0, keep_dims=True)


@triton.jit
def _quantize(x, norm, rows, q, d, sums, k, blocks, x_row, eps,
              EACH: tl.constexpr, SMALL: tl.constexpr, WHOLE: tl.constexpr, NORM: tl.constexpr, ROWS: tl.constexpr, ONCE: tl.constexpr,
              PDL: tl.constexpr):  # fmt: skip
    """EACH blocks of a token, in tiles of [u, c, block, p, j]: 32 lanes have the u and c of a block, and each two words, which lie side by side.

    What belongs to all c, or to all of a block, is stored from tiles that still have them, by one lane: any other tile would be laid out
    in another way, and moved through shared memory.
    """
    token, begin = tl.program_id(0).to(tl.int64), tl.program_id(1) * EACH
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = token
    if ROWS:
        row = tl.load(rows + token).to(tl.int64)
        if row < 0:
            return
    u, c = tl.arange(0, 8)[:, None, None, None, None], tl.arange(0, 4)[None, :, None, None, None]
    p, j = tl.arange(0, 2)[None, None, None, :, None], tl.arange(0, 4)[None, None, None, None, :]
    each = tl.arange(0, EACH)[None, None, :, None, None]
    first = each * 256 + u * 32 + p * 16 + c * 4 + j
    block = begin + each
    x_at = x + row * x_row
    if NORM:
        value = _normed(x_at, norm, begin * 256 + first, first, k, eps, EACH, WHOLE, ONCE).to(tl.float32)
    else:
        value = _load(x_at, begin * 256 + first, k, WHOLE).to(tl.float32)
    most = _whole(tl.max(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 4, keep_dims=True), SMALL)
    broken = most >= _INF_BITS
    none = broken | (most < _ZERO_BELOW_BITS)
    amax = most.to(tl.float32, bitcast=True)
    # changes no code, and stands between product and sum, which then cannot be fused (see above)
    product = tl.minimum(value * tl.div_rn(127.0, amax), 127.0)
    code = (product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS
    word = tl.where(none, 0, tl.sum((code & 0xFF) << (j * 8), 4, keep_dims=True))
    inside = block < blocks
    octet, r = token >> 3, (token & 7).to(tl.int32)
    tl.store(q + octet * blocks * 512 + (block * 512 + (u >> 1) * 128 + r * 16 + c * 4 + (u & 1) * 2 + p), word, mask=inside)
    scale = tl.div_rn(amax, 127.0).to(tl.int32, bitcast=True)
    scale = tl.where(broken, _NAN_BITS, tl.where(none, 0, scale)).to(tl.float32, bitcast=True)
    sixteen = tl.where(none, 0, tl.sum(tl.sum(code, 4, keep_dims=True), 1, keep_dims=True))
    thirty_two = tl.sum(sixteen, 3, keep_dims=True)
    once = inside & (c == 0)
    if SMALL:
        at = octet * blocks * 64 + (block * 64 + (u >> 1) * 16 + r * 2 + (u & 1) + c * 0)
        tl.store(d + at, scale, mask=once)
        tl.store(sums + at, tl.where(none, 0.0, scale * thirty_two.to(tl.float32)), mask=once)
    else:
        tl.store(d + octet * blocks * 8 + r + (block * 8 + (u + c) * 0), scale, mask=once & (u == 0))
        sums_at = sums + octet * blocks * 192 + (block * 192 + r * 8 + c * 0)
        tl.store(sums_at + (u & 7), thirty_two.to(tl.int16), mask=once)
        tl.store(sums_at + (64 + (u >> 2) * 64 + (u & 3) * 2 + p), sixteen.to(tl.int16), mask=once)
