"""A layer of torch whose weights stay in a block format of GGUF: `QuantLinear`."""

from typing import Any

from lanewise import ops  # first: it says in words when torch is not installed
from lanewise.errors import FormatError, ShapeError
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack

import torch  # isort: skip

__all__ = ["QuantLinear"]

_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class QuantLinear(torch.nn.Module):
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

    tiles: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, raw: torch.Tensor, fmt: str, bias: torch.Tensor | None = None, *, gated: bool = False) -> None:
        super().__init__()
        w = pack(raw, fmt, gated)
        if raw.dim() != 2:
            raise ShapeError(f"raw is uint8 {list(raw.shape)}; a layer has [rows, row_bytes]")
        if bias is not None and (not isinstance(bias, torch.Tensor) or bias.shape != (w.rows,)):
            raise ShapeError(f"bias is {list(bias.shape) if isinstance(bias, torch.Tensor) else type(bias).__name__}; it has to be [{w.rows}]")
        if bias is not None and (bias.dtype not in _TYPES or bias.device != raw.device):
            raise ShapeError(f"bias is {bias.dtype} on {bias.device}; it has to be one of {', '.join(map(str, _TYPES))} on {raw.device} like raw")
        self.format, self.in_features, self.out_features, self.gated = w.format, w.k, w.n, gated
        self.register_buffer("tiles", w.tiles)
        # without its gradient: a parameter of another layer would send every call the way that has a backward, which expands the weights
        self.register_buffer("bias", None if bias is None else bias.detach())

    @property
    def weight(self) -> QuantWeight:
        """The tiles as `ops.quant_linear` takes them."""
        return QuantWeight(self.format, self.out_features, self.in_features, self.gated, self.tiles)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """y[..., out_features] of x[..., in_features]"""
        # tiles are made by torch's kernels, and the one that rounds x starts behind them and stands between: when w is read early they are at rest
        return ops.quant_linear(x, self.weight, self.bias, constant_w=True)

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
