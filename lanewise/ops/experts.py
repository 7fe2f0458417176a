"""`grouped_linear`: y = act(x @ w[expert].T) * weight on torch tensors, for the experts that a router chose, in a block format of GGUF, packed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise import dispatch
from lanewise.errors import ShapeError
from lanewise.kernels.gpu.experts import problem
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.ops.checks import of, require_one_place, require_tensors, require_types, wants_gradient

__all__ = ["grouped_linear"]


def grouped_linear(
    x: Tensor,
    w: QuantWeight,
    expert_ids: Tensor,
    weights: Tensor | None = None,
    *,
    out: torch.dtype | None = None,
    constant_w: bool = False,
    ids_ready: bool = False,
    check: bool = True,
) -> Tensor:
    """y[tokens, top_k, n] = act(x[tokens, k] @ w[expert_ids[token, slot]].T) * weights[token, slot]; w as `quant_pack.pack` makes it of experts.

    x:          [tokens, k], a row for all of a token's experts, or [tokens, top_k, k], a row for each of them
    expert_ids: int32 or int64 [tokens, top_k]; an expert may be there twice, and one may have no rows
    weights:    [tokens, top_k], the router's, of x's type or float32: what would be y without them, rounded to its type (of gated w SiLU of the gates
                and its product with the ups each too), is multiplied in float32 and rounded once more
    out:        the type of y: x's, which is the default, or float32
    constant_w: a promise that no kernel still in flight on the stream writes w; with `ids_ready` the same of expert_ids, and w may be read before the
                previous kernel has ended
    check:      whether an id that is no expert's raises ShapeError, for which the call waits for the device; without it, and in a graph that is being
                recorded, where nothing can wait, such rows are NaN. w is not read outside its experts in any case

    A kernel rounds x to int8 as `formats.activations` says, and products are exact up to their scales; a row has the bits that `quant_linear` by
    `quant_gemv` has with its expert alone. Where no kernel runs experts are expanded one by one, and a warning says so once. Raises ShapeError,
    FormatError and DeviceError for operands that do not fit together.

    >>> from warnings import simplefilter; simplefilter("ignore")  # here no kernel reads packed weights, which it would say
    >>> from lanewise.kernels.gpu.quant_pack import pack
    >>> raw = torch.tensor([[[0, 56] + [2] * 32], [[0, 52] + [4] * 32]], dtype=torch.uint8)  # Q8_0: 0.5 * 2, and 0.25 * 4
    >>> grouped_linear(torch.ones(1, 32), pack(raw, "Q8_0"), torch.tensor([[1, 0]]), torch.tensor([[0.5, 0.25]]))
    tensor([[[16.],
             [ 8.]]])
    """
    if not torch.compiler.is_compiling():
        if not isinstance(w, QuantWeight):
            raise ShapeError(f"w is a {type(w).__name__}; grouped_linear takes a QuantWeight, which quant_pack.pack makes of a file's bytes")
        require_tensors("grouped_linear", ("x", "expert_ids"), x=x, expert_ids=expert_ids, weights=weights)
    return _OP(x, w.tiles, w.format, w.n, w.k, w.gated, expert_ids, weights, out, constant_w, ids_ready, check)


def _run(
    x: Tensor,
    w: QuantWeight,
    ids: Tensor,
    weights: Tensor | None = None,
    out: torch.dtype | None = None,
    constant_w: bool = False,
    ids_ready: bool = False,
    check: bool = True,
    *,
    grad: bool = False,
) -> Tensor:
    _shape(x, w, ids, weights, out)
    if check and not ids.is_cuda and not ids.is_meta:
        _require_experts(ids, w)
    asked = problem(x, w, ids, out, grad)
    y: Tensor = dispatch.run(asked, x, w, ids, weights, out, constant_w, ids_ready, asked=asked)
    # behind the launch, so that the device has work while this waits
    if check and ids.is_cuda and not torch.cuda.is_current_stream_capturing():
        _require_experts(ids, w)
    return y


def _require_experts(ids: Tensor, w: QuantWeight) -> None:
    if ids.numel():
        least, most = torch.stack(torch.aminmax(ids)).tolist()
        if least < 0 or most >= w.experts:
            raise ShapeError(f"expert ids run from {least} to {most}; there are {f'experts 0 to {w.experts - 1}' if w.experts else 'no experts'}")


def _shape(x: Tensor, w: QuantWeight, ids: Tensor, weights: Tensor | None, out: torch.dtype | None) -> tuple[int, ...]:
    """The shape of y. Raises ShapeError or DeviceError, in words, for operands that do not fit together."""
    if w.tiles.dim() != 4:
        raise ShapeError("w is one weight, without experts; quant_linear multiplies by it")
    if ids.dim() != 2 or ids.dtype not in (torch.int32, torch.int64):
        raise ShapeError(f"expert_ids are {ids.dtype} {of(ids)}; they have to be int32 or int64 [tokens, top_k]")
    if x.dim() not in (2, 3) or x.shape[-1] != w.k or x.shape[:-1] != ids.shape[: x.dim() - 1]:
        each = f"[{ids.shape[0]}, {w.k}] or [{ids.shape[0]}, {ids.shape[1]}, {w.k}]"
        raise ShapeError(f"x is {of(x)}; with expert_ids {of(ids)} and w {w.format} [{w.experts}, {w.rows}, {w.k}] it has to be {each}")
    require_types(x, out)
    if weights is not None and (weights.shape != ids.shape or weights.dtype not in (x.dtype, torch.float32)):
        raise ShapeError(f"weights are {weights.dtype} {of(weights)}; they have to be {of(ids)} of {x.dtype} like x, or torch.float32")
    require_one_place("grouped_linear", x, w=w.tiles, expert_ids=ids, weights=weights)
    return (*ids.shape, w.n)


def _called(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool, ids: Tensor, *others: Any) -> Tensor:  # noqa: A002
    return _run(x, QuantWeight(format, n, k, gated, tiles), ids, *others)


def _fake(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool, ids: Tensor, *others: Any) -> Tensor:  # noqa: A002
    weights, out = (*others, None, None)[:2]
    return x.new_empty(_shape(x, QuantWeight(format, n, k, gated, tiles), ids, weights, out), dtype=out)


def _differentiable(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool, ids: Tensor, *others: Any) -> Tensor:  # noqa: A002
    if wants_gradient(x, *others):
        return _run(x, QuantWeight(format, n, k, gated, tiles), ids, *others, grad=True)
    with torch._C._AutoDispatchBelowAutograd():
        return _OP(x, tiles, format, n, k, gated, ids, *others)


_LIBRARY = torch.library.Library("lanewise", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "grouped_linear(Tensor x, Tensor tiles, str format, int n, int k, bool gated, Tensor expert_ids, Tensor? weights=None, ScalarType? out=None, "
    "bool constant_w=False, bool ids_ready=False, bool check=True) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("grouped_linear", _called, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
_LIBRARY.impl("grouped_linear", _differentiable, "Autograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("lanewise::grouped_linear", _fake, lib=_LIBRARY)
_OP: Callable[..., Tensor] = torch.ops.lanewise.grouped_linear.default
