"""y[m,n] = act(rms_norm(x[m,k]) @ w[n,k].T + bias) + residual for m = 1..16 in bf16 or fp16, with float32 sums: the decode kernel.

Three bodies in Triton (`lanes.py`, `fragments.py`) and how a configuration cuts a call for them.

On NVIDIA a kernel may start before the one in front of it has ended (programmatic dependent launch): with `constant_w` the first tiles
of w are on their way before that wait, everything else is read behind it. Every program waits, so that whoever waits for it has waited for
all that came before.
"""

from typing import Any

import torch
import triton

from lanewise.arch import Arch
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.defaults import default
from lanewise.kernels.gpu.fragments import _fragments
from lanewise.kernels.gpu.laid_out import checked
from lanewise.kernels.gpu.lanes import _combine, _lanes, _matrix

__all__ = ["skinny"]

_PADDED = 16  # tokens that the matrix body works on
_VECTOR = 8  # elements of w that a lane loads at a time, 16 bytes
_WAITING_WAVE = 64  # where a dot's result must not be read at once (LLVM's hazard recognizer, gfx90a and later); harmless on the others
_COMBINED = 512  # rows of w that a program of `_combine` adds up
# How a tile lies in lanes where assembly relies on it: 4 pairs of a row each, in 32 lanes or in 4 of 8 rows.
_LANES = "sizePerThread = [1, 4], threadsPerWarp = [1, 32], warpsPerCTA = [\\d+, \\d+], order = [1, 0]"
_QUADS = "sizePerThread = [1, 1, 4], threadsPerWarp = [8, 1, 4], warpsPerCTA = [1, \\d+, 1], order = [2, 0, 1]"
_BODIES = {"lanes": _lanes, "mma": _lanes, "fragments": _fragments, "matrix": _matrix}


def skinny(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    norm: torch.Tensor | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: torch.dtype | None = None,
    constant_w: bool = False,
    config: Config,
    arch: Arch,
) -> torch.Tensor:
    """y[m,n] of x[m,k] and w[n,k] (of gated w[2n,k]), both with an inner stride of 1; everything else as in `ops.linear`, which checks it."""
    (m, k), n = x.shape, w.shape[0] // 2 if gated else w.shape[0]
    y = _new((m, n), out or x.dtype, x.device)
    if m == 0 or n == 0:
        return y
    norm = norm if k else None
    aligned = k > 0 and norm is None and _begin_at(x, 16) and _begin_at(w, 16)
    if config.body == "fragments" and not (aligned and (arch.mma16 or _interpreted())):
        config = default(arch, "", m, n, k)
    rows, tile, body = max(config.rows, 2) if gated else config.rows, config.tile, _BODIES[config.body]
    mma = config.body == "mma" and aligned and arch.mma16 and not _interpreted()
    pairs = ""
    if mma or body is _fragments:
        pairs = f"{'mma ' if mma else 'plain ' if _interpreted() else ''}{'f16' if x.dtype is torch.float16 else 'bf16'}"
    elif body is _lanes:
        pairs = _pairs(x, w, norm, arch)
    spread = tile < _VECTOR * arch.wave * config.warps
    if pairs:
        x, w, k, tile = _paired(x), _paired(w), k // 2, tile // 2
    share = triton.cdiv(triton.cdiv(k, config.splits), tile) * tile
    splits = max(1, triton.cdiv(k, share)) if k else 1
    share = share if splits > 1 else k
    tiles = triton.cdiv(share, tile)
    ahead = min(config.ahead, tiles)
    groups = 1 if body is _matrix else config.groups if ahead == tiles else 2 if mma else 1
    programs = triton.cdiv(w.shape[0], rows * groups)
    part = _new((splits, m, programs * groups * rows), torch.float32, x.device) if splits > 1 else y
    whole = k > 0 and w.shape[0] % (rows * groups) == 0 and k % tile == 0 and k % share == 0
    pdl = arch.pdl and not _interpreted()
    fused: dict[str, Any] = {"BIAS": bias is not None, "RESIDUAL": residual is not None, "GATED": gated, "PDL": pdl}
    strides = (*_strides(bias), *_strides(residual))
    late = {"launch_pdl": True} if pdl else {}
    cut = {"AHEAD": ahead, "STAGES": config.stages, "LOOP": tiles > ahead, "SPLIT": splits > 1, "WHOLE": whole,
           "GROUPS": groups, "EARLY": pdl and constant_w, "num_warps": config.warps, **fused, **late}  # fmt: skip
    before, after = (x, w, y, _or(bias, y), _or(residual, y)), (part, m, n, k)
    exact = mma or body is _fragments  # the compiler has to see that rows begin at 16 bytes
    known = {"W_ROW": w.stride(0) if whole or exact else -1, "X_ROW": 0 if m == 1 else x.stride(0) if exact else -1}
    if body is _fragments:
        compiled = body[programs, splits](*before, *after, *strides, share, HALVES=triton.cdiv(m, 8), WARPS=config.warps, KIND=pairs, **known, **cut)
    else:
        compiled = body[programs, splits](
            *before, _or(norm, x), *after, x.stride(0), w.stride(0), *strides, eps, share, M=m if body is _lanes else _PADDED, ROWS=rows, TILE=tile,
            SPREAD=spread, FAR=rows * w.stride(0) + k >= 2**31, K=k if whole else 0, NORM=norm is not None, PAIRS=pairs, **known, **cut,
        )  # fmt: skip
    if mma or (body is _fragments and not _interpreted()):
        checked(compiled, _LANES if mma else _QUADS)
    if splits > 1:
        width = min(_COMBINED, triton.next_power_of_2(part.shape[2]))
        _combine[(triton.cdiv(part.shape[2], width), m)](
            part, y, _or(bias, y), _or(residual, y), m, n, part.shape[2], splits, *strides, ROWS=width, num_warps=4, **fused, **late
        )
    return y


def _new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a result; a test puts its own in the place of this, with bands around it."""
    return torch.empty(shape, dtype=dtype, device=device)


def _interpreted() -> bool:
    return bool(triton.knobs.runtime.interpret)


def _pairs(x: torch.Tensor, w: torch.Tensor, norm: torch.Tensor | None, arch: Arch) -> str:
    """How lanes multiply pairs of fp16; empty where they do not: rows have an even length and begin at a multiple of 4 bytes."""
    if not arch.dot2_f16 or norm is not None or x.dtype is not torch.float16 or not (_begin_at(x, 4) and _begin_at(w, 4)):
        return ""
    return "plain" if _interpreted() else "dot2 and wait" if arch.wave == _WAITING_WAVE else "dot2"


def _begin_at(tensor: torch.Tensor, multiple: int) -> bool:
    """Whether rows have an even length and all begin at a multiple of so many bytes."""
    apart = tensor.stride(0) * tensor.element_size() if tensor.shape[0] > 1 else 0
    whole = tensor.shape[1] % 2 == 0 and tensor.storage_offset() % 2 == 0  # pairs, also where torch counts from the storage's beginning
    return whole and apart % multiple == 0 and tensor.data_ptr() % multiple == 0


def _paired(tensor: torch.Tensor) -> torch.Tensor:
    """Two elements as one int32."""
    if tensor.shape[0] == 1:  # whose stride, which means nothing, torch would not halve
        tensor = tensor.as_strided(tensor.shape, (tensor.shape[1], 1))
    return tensor.view(torch.int32)


def _or(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """An operand, or in place of one that is not there a pointer that nothing reads."""
    return other if tensor is None else tensor


def _strides(tensor: torch.Tensor | None) -> tuple[int, int]:
    """(of a token, of a column); a vector is the same for every token."""
    if tensor is None:
        return 0, 1
    return (0, tensor.stride(0)) if tensor.dim() == 1 else (tensor.stride(0), tensor.stride(1))
