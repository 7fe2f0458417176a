"""What act_quant must give: without a norm one set of bits, behind a norm what the float32 norm leaves open, and in which order it lies."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.activations import ZERO_BELOW, quantize_q8_0, quantize_q8_k
from lanewise.oracle.chain import normalised

__all__ = ["GROUPS", "Allowed", "Words", "allowed", "laid_out", "sums_of", "wrong"]

GROUPS = {"q8_0": 32, "q8_k": 256}
_F32 = NDArray[np.float32]
_NAN_BITS = 0x7FC00000


@dataclass(frozen=True, slots=True)
class Allowed:
    """q int8[m,k] and d float32[m,groups] lie between these, ends included; where both ends are equal there is no choice."""

    q_low: NDArray[np.int8]
    q_high: NDArray[np.int8]
    d_low: _F32
    d_high: _F32


@dataclass(frozen=True, slots=True)
class Words:
    """q, d and sums as `kernels.gpu.act_quant.Activations` has them; `of_tokens` says which axis is r, the token in its octet."""

    q: NDArray[np.int32]
    d: _F32
    sums: NDArray[Any]

    @staticmethod
    def of_tokens(name: str, kind: str) -> int:
        """The axis of tokens in an octet."""
        return 2 if (name, kind) == ("d", "q8_k") else 3


def allowed(x: NDArray[np.floating], kind: str, norm: NDArray[np.floating] | None = None, eps: float = 0.0, dtype: str = "f32") -> Allowed:
    """From x[m,k] as numbers of that dtype. Without a norm this is the definition; a norm may leave x one step of its dtype to either side."""
    quantize = quantize_q8_0 if kind == "q8_0" else quantize_q8_k
    if norm is None:
        made = quantize(np.asarray(x, np.float32))
        return Allowed(made.q, made.q, made.d, made.d)
    group = GROUPS[kind]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        near, slack = normalised(x, norm, eps, dtype)
        low, high = (np.asarray(end, np.float32).reshape(len(x), -1, group) for end in (near - slack, near + slack))
        # what of |x| is certain, and what is possible
        least = np.where(np.sign(low) == np.sign(high), np.minimum(np.abs(low), np.abs(high)), np.float32(0)).max(axis=-1, initial=0)
        most = np.maximum(np.abs(low), np.abs(high)).max(axis=-1, initial=0)
        broken = ~np.isfinite(least + most)
        ends = [_scaled(end, amax) for end in (low, high) for amax in (least, most)]
        q_low, q_high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    q_low[broken], q_high[broken] = 0, 0
    d_low, d_high = (_d(amax, broken) for amax in (least, most))
    return Allowed(q_low.reshape(x.shape).astype(np.int8), q_high.reshape(x.shape).astype(np.int8), d_low, d_high)


def _scaled(x: _F32, amax: _F32) -> _F32:
    """rint(x * (127 / amax)) with codes that there are, zero where amax is under the threshold."""
    scaled = np.rint(x * (np.float32(127) / amax)[..., None])
    return np.asarray(np.where((amax < np.float32(ZERO_BELOW))[..., None], np.float32(0), np.clip(scaled, -127, 127)), np.float32)


def _d(amax: _F32, broken: NDArray[np.bool_]) -> _F32:
    d = np.where(amax < np.float32(ZERO_BELOW), np.float32(0), amax / np.float32(127))
    return np.where(broken, np.array(_NAN_BITS, np.uint32).view(np.float32), d)


def laid_out(q: NDArray[np.int8], d: _F32, kind: str) -> Words:
    """The words of q[m,k] and d[m,groups] and their sums, by octets of tokens; all are zero from column k and from token m on.

    Token 8o + r and column 256b + 32u + 16p + 4c + j are byte j of q[o, b, u // 2, r, c, u % 2 * 2 + p].
    """
    m, k = q.shape
    octets, blocks = -(-m // 8), -(-k // 256)
    padded, wide = np.zeros((8 * octets, blocks * 256), np.int8), np.zeros((8 * octets, blocks * 256 // GROUPS[kind]), np.float32)
    padded[:m, :k], wide[:m, : k // GROUPS[kind]] = q, d
    # [octet, r, block, u // 2, u % 2, p, c, j]
    words = padded.reshape(octets, 8, blocks, 4, 2, 2, 4, 4).transpose(0, 2, 3, 1, 6, 4, 5, 7)
    words = np.ascontiguousarray(words).view(np.int32).reshape(octets, blocks, 4, 8, 4, 4)
    sums = sums_of(padded, wide, kind)
    if kind == "q8_0":
        return Words(words, *(one.reshape(octets, 8, blocks, 4, 2).transpose(0, 2, 3, 1, 4) for one in (wide, sums)))
    sixteens = sums.reshape(octets, 8, blocks, 16)
    both = np.concatenate([sixteens[..., ::2] + sixteens[..., 1::2], sixteens], axis=3).reshape(octets, 8, blocks, 3, 8)
    return Words(words, wide.reshape(octets, 8, blocks).transpose(0, 2, 1), np.ascontiguousarray(both.transpose(0, 2, 3, 1, 4)).view(np.int32))


def sums_of(q: NDArray[np.int8], d: _F32, kind: str) -> NDArray[Any]:
    """q8_0: float32[m,k/32], d times the sum of a group, rounded once, and zero where d is no number; q8_k: int16[m,k/16]."""
    if kind == "q8_k":
        return q.reshape(len(q), -1, 16).sum(axis=2, dtype=np.int16) if q.size else np.zeros((len(q), q.shape[1] // 16), np.int16)
    whole = q.reshape(*d.shape, 32).sum(axis=2, dtype=np.int64).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.isnan(d), np.float32(0), d * whole)


def wrong(q: NDArray[np.int8], d: _F32, given: Allowed) -> str:
    """Which q or d is not what is allowed, in words; empty where none is."""
    bits = d.view(np.uint32)
    with np.errstate(invalid="ignore"):
        outside = np.where(np.isnan(given.d_low), bits != _NAN_BITS, ~((d >= given.d_low) & (d <= given.d_high)))
    # a zero is +0
    outside |= bits == 0x80000000
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        between = f"{float(given.d_low[at])!r}..{float(given.d_high[at])!r}"
        return f"{int(outside.sum())} of {d.size} scales are not as defined; d{list(at)} is {float(d[at])!r}, allowed {between}"
    off = (q < given.q_low) | (q > given.q_high)
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        between = f"{int(given.q_low[at])}..{int(given.q_high[at])}"
        return f"{int(off.sum())} of {q.size} codes are not as defined; q{list(at)} is {int(q[at])}, allowed {between}"
    return ""
