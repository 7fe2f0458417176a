"""Layers of torch whose weights stay in a block format of GGUF: `QuantLinear`, and `QuantExperts` of a mixture."""

from typing import Any

from lanewise import ops  # first: it says in words when torch is not installed
from lanewise.errors import FormatError, ShapeError
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack

import torch  # isort: skip

__all__ = ["QuantExperts", "QuantLinear"]

_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class _Packed(torch.nn.Module):
    """Packed weights as a buffer.

    The state has the tiles, and what they are: loading those of other sizes, of another format, or of one that is not said raises FormatError, and
    leaves the layer as it was.
    """

    tiles: torch.Tensor

    def __init__(self, w: QuantWeight) -> None:
        super().__init__()
        self.format, self.in_features, self.out_features, self.gated = w.format, w.k, w.n, w.gated
        self.register_buffer("tiles", w.tiles)

    @property
    def weight(self) -> QuantWeight:
        """The tiles as ops take them."""
        return QuantWeight(self.format, self.out_features, self.in_features, self.gated, self.tiles)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, format={self.format}, gated={self.gated}"

    def get_extra_state(self) -> dict[str, Any]:
        return {"format": self.format, "in_features": self.in_features, "out_features": self.out_features, "gated": self.gated}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Looked at before the tiles are loaded."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Tiles of two formats can be of one size: without what they are they would load, and be read as the wrong one.

        It is asked in front of the copy, so that whoever goes on after the error has the layer as it was.
        """
        if prefix + "tiles" in state_dict:
            given = state_dict.get(prefix + "_extra_state", "no format and no sizes beside its tiles")
            if given != self.get_extra_state():
                raise FormatError(f"the state is of a layer with {given}; this one has {self.get_extra_state()}")
        super()._load_from_state_dict(state_dict, prefix, *others)


class QuantLinear(_Packed):
    """y[..., out_features] = x[..., in_features] @ w.T + bias, with w packed, on the kernel that dispatch chooses (`ops.quant_linear`).

    raw:   uint8[rows, row_bytes], the rows of w in format `fmt` as a file has them, on the device that shall have the layer
    bias:  [rows] of float32, float16 or bfloat16 beside raw, or None; of one that is trained elsewhere its numbers alone
    gated: rows are n gates and then n ups, and y is SiLU(gate) * up of n features

    Nothing here is trained; a gradient reaches x all the same. The state has the tiles and the bias, and what the tiles are: loading those of other
    sizes, of another format, or of one that is not said raises FormatError, and leaves the layer as it was. Raises ShapeError and FormatError
    for rows or a bias that are none.

    >>> raw = torch.tensor([[0, 56] + [2] * 32, [0, 52] + [4] * 32], dtype=torch.uint8)
    >>> QuantLinear(raw, "Q8_0")
    QuantLinear(in_features=32, out_features=2, format=Q8_0, gated=False)
    """

    bias: torch.Tensor | None

    def __init__(self, raw: torch.Tensor, fmt: str, bias: torch.Tensor | None = None, *, gated: bool = False) -> None:
        w = pack(raw, fmt, gated)
        if raw.dim() != 2:
            raise ShapeError(f"raw is uint8 {list(raw.shape)}; a layer has [rows, row_bytes]")
        super().__init__(w)
        if bias is not None and (not isinstance(bias, torch.Tensor) or bias.shape != (w.rows,)):
            raise ShapeError(f"bias is {list(bias.shape) if isinstance(bias, torch.Tensor) else type(bias).__name__}; it has to be [{w.rows}]")
        if bias is not None and (bias.dtype not in _TYPES or bias.device != raw.device):
            raise ShapeError(f"bias is {bias.dtype} on {bias.device}; it has to be one of {', '.join(map(str, _TYPES))} on {raw.device} like raw")
        # without its gradient: a parameter of another layer would send every call the way that has a backward, which expands the weights
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """y[..., out_features] of x[..., in_features]"""
        # tiles are made by torch's kernels, and the one that rounds x starts behind them and stands between: when w is read early they are at rest
        return ops.quant_linear(x, self.weight, self.bias, constant_w=True)


class QuantExperts(_Packed):
    """y[tokens, top_k, out_features] of the experts that a router chose for each token, w packed, on the kernel that dispatch chooses.

    raw:   uint8[experts, rows, row_bytes], the rows of every expert in format `fmt` as a file has them, on the device that shall have the layer
    gated: an expert's rows are n gates and then n ups, and y is SiLU(gate) * up of n features

    Nothing here is trained; a gradient reaches x and the router's weights all the same. `ops.grouped_linear` has no bias. The state is as
    QuantLinear's. Raises ShapeError and FormatError for rows that are none.

    >>> raw = torch.tensor([[[0, 56] + [2] * 32], [[0, 52] + [4] * 32], [[0, 60] + [1] * 32]], dtype=torch.uint8)
    >>> QuantExperts(raw, "Q8_0")
    QuantExperts(experts=3, in_features=32, out_features=1, format=Q8_0, gated=False)
    """

    def __init__(self, raw: torch.Tensor, fmt: str, *, gated: bool = False) -> None:
        w = pack(raw, fmt, gated)
        if raw.dim() != 3:
            raise ShapeError(f"raw is uint8 {list(raw.shape)}; experts have [experts, rows, row_bytes]")
        super().__init__(w)
        self.experts = w.experts

    def forward(self, x: torch.Tensor, expert_ids: torch.Tensor, weights: torch.Tensor | None = None, *, check: bool = True) -> torch.Tensor:
        """y[tokens, top_k, out_features] of x[tokens, in_features] or [tokens, top_k, in_features]; the rest as `ops.grouped_linear` has it."""
        return ops.grouped_linear(x, self.weight, expert_ids, weights, constant_w=True, check=check)

    def extra_repr(self) -> str:
        return f"experts={self.experts}, {super().extra_repr()}"

    def get_extra_state(self) -> dict[str, Any]:
        return {"experts": self.experts, **super().get_extra_state()}
