"""Lanewise in a PyTorch model: `Linear` in place of torch.nn.Linear, and `patch`, which puts it there.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
>>> patch(model).names
('0',)
>>> unpatch(model)
('0',)
"""

from collections.abc import Callable
from dataclasses import dataclass

from lanewise import ops  # first: it says in words when torch is not installed
from lanewise.errors import ModelError

import torch  # isort: skip
from torch.nn import functional  # isort: skip

__all__ = ["Linear", "Patch", "patch", "unpatch"]

_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SEEN = "_lanewise_seen"


class Linear(torch.nn.Linear):
    """y[..., out_features] = x[..., in_features] @ weight.T + bias, on the kernel that dispatch chooses; a torch.nn.Linear in all else.

    Under autocast, inside transforms of torch.func, and for tensors that `ops.linear` does not take, forward is torch's own.
    """

    @classmethod
    def from_torch(cls, linear: torch.nn.Linear) -> "Linear":
        """A layer with the same tables of parameters, buffers and hooks: nothing is copied. Raises ModelError where something would be lost."""
        why = _objection(linear)
        if why:
            raise ModelError(f"from_torch: {why}")
        made = cls.__new__(cls)
        made.__dict__ = dict(vars(linear))
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """y[..., out_features] of x[..., in_features]"""
        weight, bias = self.weight, self.bias
        if (
            not (_is_plain(x) and _is_plain(weight) and x.dtype is weight.dtype)
            or (bias is not None and bias.dtype is not x.dtype)
            or _transformed(x)
        ):
            return functional.linear(x, weight, bias)
        return ops.linear(x, weight, bias, constant_w=self._rests(weight))

    def _rests(self, weight: torch.Tensor) -> bool:
        """Whether no kernel in flight writes the weight: it is a parameter, not trained now, and as it was at the call before.

        torch counts no change that goes around it, through `weight.data` in place or a pointer: behind such a one, synchronize.
        """
        if (weight.requires_grad and torch.is_grad_enabled()) or self._parameters.get("weight") is not weight:
            return False
        # a graph is compiled once and cannot look; torch does not count changes of a tensor of inference, and a trace would keep the answer for good
        if torch.compiler.is_compiling() or weight.is_inference() or torch._C._get_tracing_state() is not None:
            return False
        # a weight that was just merged, loaded or moved may still be on its way
        now, before = (weight.data_ptr(), weight._version), getattr(weight, _SEEN, None)
        if now != before:
            setattr(weight, _SEEN, now)
        return now == before


def _is_plain(t: torch.Tensor) -> bool:
    return type(t) in _PLAIN and t.dtype in _TYPES and t.layout is torch.strided and not t.is_nested


def _transformed(x: torch.Tensor) -> bool:
    """Whether somebody stands between a call and its tensors: autocast, or vmap and its like, whose tensors have no memory of their own."""
    if torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):
        return True
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


@dataclass(frozen=True, slots=True)
class Patch:
    """What `patch` did: the names of the layers it replaced, and of those it left, each with the reason."""

    names: tuple[str, ...]
    left: dict[str, str]


def patch(model: torch.nn.Module, only: Callable[[str, torch.nn.Linear], bool] | None = None) -> Patch:
    """Make every torch.nn.Linear of a model a `Linear`, where it is: parameters, ties, hooks and whoever holds the layer keep it.

    Subclasses, which may compute something else, and layers whose forward another library has replaced are left, with the reason.
    What changes a weight in place through `.data`, which torch does not count, has to be waited for before the next call.
    `only(name, layer)` says which layers to take. `unpatch` undoes it. Raises ModelError when `model` is no torch.nn.Module.
    """
    if only is not None and not callable(only):
        raise ModelError(f"only is a {type(only).__name__}; it is called with each layer's name and the layer, and says whether to take it")
    names: list[str] = []
    left: dict[str, str] = {}
    for name, layer in _layers(model):
        if only is not None and not only(name, layer):
            continue
        why = "it is Lanewise's already" if type(layer) is Linear else _objection(layer)
        if why:
            left[name] = why
        else:
            layer.__class__ = Linear
            names.append(name)
    return Patch(tuple(names), left)


def unpatch(model: torch.nn.Module) -> tuple[str, ...]:
    """Make every `Linear` of a model a torch.nn.Linear again; the names of those that were."""
    names = []
    for name, layer in _layers(model):
        if type(layer) is Linear:
            layer.__class__ = torch.nn.Linear  # type: ignore[assignment]
            names.append(name)
    return tuple(names)


def _layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{type(model).__name__} is no torch.nn.Module; patch takes a model or one of its layers")
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]


def _objection(layer: torch.nn.Module) -> str | None:
    """Why a layer cannot be replaced; None when it can."""
    if type(layer) is not torch.nn.Linear:
        return f"{type(layer).__module__}.{type(layer).__qualname__} is not torch.nn.Linear itself; what it computes is its own"
    if "forward" in vars(layer):
        return "its forward has been replaced on the layer itself; that one would be called, or lost"
    return None
