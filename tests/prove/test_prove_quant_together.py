"""The checks of several calls of the quantized kernels, on stand-ins: a right body passes, and what reads too early or too late is seen.

That streams and graphs are what they say only a card shows.
"""

import pytest
import torch

from lanewise.kernels.gpu import quant_gemm
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.prove import quant_together as together
from lanewise.prove import together as plain

CPU = torch.device("cpu")


def right(x, w, residual=None, norm=None, constant_w=False):
    x = x if norm is None else torch.nn.functional.rms_norm(x, x.shape[-1:], norm)
    y = torch.nn.functional.linear(x, expand(w, x.dtype))
    return y if residual is None else y + residual


class Graph:
    def __init__(self, call):
        self.call, self.y = call, call()

    def replay(self):
        self.y.copy_(self.call())


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(together, "_graph", lambda call, device: (made := Graph(call), made.y))
    for name, value in {"_REPEATS": 2, "_LAYERS": 3, "_WIDTH": 256, "_FORMATS": ("Q8_0", "Q4_K"), "_SHAPES": together._SHAPES[:2]}.items():
        monkeypatch.setattr(together, name, value)


def named(check):
    return getattr(together, check)


@pytest.mark.parametrize("check", ["_again", "_graphs", "_layers", "_written", "_scratch"])
def test_a_right_body_passes(check, monkeypatch):
    monkeypatch.setattr(quant_gemm, "dequantize", lambda w, dtype, out, *, arch: out.copy_(expand(w, dtype)))
    result = plain._asked("body", named(check), right, CPU)
    assert (result.problem, result.case[-1] != ".") == ("", True)


class Late:
    """Uses what another call was given: its weights, its activations, or nothing new."""

    def __init__(self, late):
        self.late, self.before = late, {}

    def __call__(self, **a):
        key = (a["x"].shape, a["w"].n, a["w"].format)
        now = {"w": expand(a["w"], a["x"].dtype), "x": a["x"].clone(), "y": None}
        old = self.before.get(key, now)
        now["y"] = torch.nn.functional.linear(*((old if self.late == name else now)[name] for name in ("x", "w")))
        self.before[key] = now
        y = now["y"]
        return y if a.get("residual") is None else y + a["residual"]


@pytest.mark.parametrize(("late", "check"), [("w", "_written"), ("x", "_written"), ("w", "_layers"), ("x", "_graphs"), ("x", "_layers")])
def test_old_operands_are_noticed(late, check):
    assert named(check)(Late(late), CPU) != ""


def test_an_unsteady_body_is_noticed():
    calls = iter(range(1, 1000))
    assert "two runs differ" in together._again(lambda **a: right(**a) + next(calls), CPU)


def test_a_buffer_that_is_overwritten_too_early_is_noticed(monkeypatch):
    """Each layer's weights reach the product of the layer in front."""
    waiting = []

    def dequantize(w, dtype, out, *, arch):
        waiting.append(expand(w, dtype))
        return out.copy_(waiting[max(0, len(waiting) - 2)])

    monkeypatch.setattr(quant_gemm, "dequantize", dequantize)
    assert together._scratch(right, CPU) != ""


def test_a_target_has_the_bodies_that_it_runs(monkeypatch):
    assert {config.body for config in together.configs(CPU)} == {"tiles", "dots"}
    monkeypatch.setattr(together, "target", lambda device: type("Row", (), {"mma16": False}))
    assert {config.body for config in together.configs(CPU)} == {"dots"}
    assert any(config.splits > 1 for config in together.configs(CPU))
