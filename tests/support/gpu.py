"""A GPU that is none: torch.cuda as far as `bench` uses it, on this processor and its clock.

It proves what is asked of torch.cuda, in which order, and what becomes of the answers; that a graph replays what was captured, only a GPU proves.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lanewise import dispatch
from lanewise.bench import replay
from lanewise.bench.gpu_card import answer
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.prove.quant_exact import quantized as quantized_x
from support.gpu_bundles import DRIVER, NAME, ROW

CACHE = 1 << 16
CALL_SECONDS = {"skinny": 4e-6, "blas": 6e-6, "other": 5e-6, "quant_gemv": 4e-6, "quant_gemm": 9e-6, "quant_blas": 12e-6}
CALL_SECONDS["grouped_quant"] = 4e-6


class Log(list[str]):
    """What was asked, in order."""

    capturing: bool = False
    ran: str = "other"


LOG = Log()


class Graph:
    def capture_begin(self) -> None:
        assert not LOG.capturing
        LOG.capturing, self.cost = True, 0.0
        LOG.append("begin")

    def capture_end(self) -> None:
        LOG.capturing = False
        self.cost, self.last = max(20e-6, _PENDING[0]), tuple(_WRITES)
        _PENDING[0] = 0.0
        _WRITES.clear()
        LOG.append("end")

    def replay(self) -> None:
        assert not LOG.capturing
        LOG.append("replay")
        for y, x, w in self.last[-1:]:
            y.copy_((x @ w.T).reshape(y.shape))
        until = time.perf_counter() + self.cost
        while time.perf_counter() < until:
            pass


_PENDING = [0.0]
_WRITES: list[tuple[Any, Any, Any]] = []


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self, stream: Any = None) -> None:
        LOG.append("record")
        self.at = time.perf_counter()

    def elapsed_time(self, other: "Event") -> float:
        return (other.at - self.at) * 1e3

    def synchronize(self) -> None:
        LOG.append("synchronize")


def keep_time(patch: pytest.MonkeyPatch) -> None:
    """A clock that replays alone advance, for tests that compare times: whatever else runs on this processor is not in them."""
    now = [0.0]

    def replay_at_once(self: Graph) -> None:
        LOG.append("replay")
        for y, x, w in self.last[-1:]:
            y.copy_((x @ w.T).reshape(y.shape))
        now[0] += self.cost

    def record(self: Event, stream: Any = None) -> None:
        self.at = now[0]

    patch.setattr(Graph, "replay", replay_at_once)
    patch.setattr(Event, "record", record)


class Stream:
    def __init__(self, device: Any = None) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...


class Gpu(replay.Gpu):
    """Tensors lie on this processor."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.device = torch.device("cpu")


@contextmanager
def _on(stream: Any) -> Iterator[None]:
    yield


def properties(cache: int = CACHE) -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME, major=9, minor=0, multi_processor_count=132, total_memory=150 << 30, L2_cache_size=cache, uuid="0-1", gcnArchName="",
        pci_domain_id=0, pci_bus_id=1, pci_device_id=0,
    )  # fmt: skip


def install(patch: pytest.MonkeyPatch, kernels: list[Any], readings: dict[str, Any] | None = None) -> None:
    """Put the stand-ins in place. kernels: compiled ones, which Triton is said to have launched for the skinny arm."""
    LOG.clear()
    _DEFINED.clear()
    LOG.capturing, _PENDING[0] = False, 0.0
    quiet = {
        "clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature": 40, "power": 120.0, "throttle": ["idle"], "processes": [],
    } | (readings or {})  # fmt: skip
    cuda: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "set_device": lambda device: None, "Stream": Stream, "stream": _on,
        "current_stream": lambda device=None: Stream(), "CUDAGraph": Graph, "Event": Event, "synchronize": lambda device=None: None,
        "empty_cache": lambda: None, "mem_get_info": lambda device=None: (1 << 40, 1 << 40),
        "get_device_properties": lambda device=None: properties(),
    }  # fmt: skip
    for name, value in cuda.items():
        patch.setattr(torch.cuda, name, value)
    for module in ("cuda", "tune"):
        patch.setattr(f"lanewise.bench.{module}.Gpu", Gpu)
    patch.setattr("lanewise.bench.gpu_beside.asked", answer)
    for module in ("cuda", "gpu_beside"):
        patch.setattr(f"lanewise.bench.{module}.watch", lambda given, computes=True: SimpleNamespace(driver=DRIVER, read=lambda: dict(quiet)))
    patch.setattr("lanewise.kernels.gpu.device.named", lambda device: (ROW.name, NAME))
    patch.setattr("lanewise.bench.gpu_probes.read_all", lambda *args: None)
    patch.setattr("lanewise.bench.gpu_probes.FLOAT_SIZE", 64)
    patch.setattr("lanewise.bench.gpu_probes.gpu_probe_bytes", lambda cache: 1 << 16)
    ran: list[Any] = []

    @contextmanager
    def recorded() -> Iterator[list[Any]]:
        ran.clear()
        yield ran

    def skinny(x: Any, w: Any, *rest: Any, **named: Any) -> Any:
        ran[:] = kernels
        return _product("skinny", x, w)

    def blas(x: Any, w: Any, *rest: Any, **named: Any) -> Any:
        return _product("blas", x, w)

    def quantized(name: str) -> Any:
        def run(x: Any, w: Any, *rest: Any, **named: Any) -> Any:
            ran[:] = [] if name == "quant_blas" else kernels
            return _product(name, *_definition(name, x, w))

        return run

    def experts(x: Any, w: Any, ids: Any, *rest: Any, **named: Any) -> Any:
        ran[:] = kernels
        return _routed(x, w, ids)

    patch.setattr("lanewise.bench.cuda.recorded", recorded)
    bodies = {"skinny": skinny, "blas": blas, "grouped_quant": experts} | {
        name: quantized(name) for name in ("quant_gemv", "quant_gemm", "quant_blas")
    }
    for op in ("linear", "quant_linear", "grouped_linear"):
        row = [replace(kernel, run=bodies[kernel.name]) if kernel.name in bodies else kernel for kernel in dispatch.kernels(op)]
        patch.setitem(dispatch._REGISTRY, op, row)
    patch.setattr("lanewise.bench.gpu_operands.act_quant", lambda x, kind, **named: x)
    patch.setattr("lanewise.bench.gpu_operands.dequantize", lambda w, dtype, **named: expand(w, dtype))

    def alone(x: Any, w: Any, **named: Any) -> Any:
        ran[:] = kernels
        return _product("quant_gemv", *_definition("quant_gemv", x, w))

    patch.setattr("lanewise.bench.gpu_operands.quant_gemv", alone)


_DEFINED: dict[Any, Any] = {}


def _definition(name: str, x: Any, w: Any) -> tuple[Any, Any]:
    """Operands of a product in float64 that is what a kernel's definition says, or of BLAS."""
    key = name == "quant_gemv", x.data_ptr(), len(x), w.tiles.data_ptr()
    if key not in _DEFINED:
        q, d = quantized_x(x.float().numpy(), w.layout.activation)
        rounded = torch.from_numpy(q * d.astype("float64").repeat(w.k // d.shape[1], axis=1))
        operands = (rounded, expand(w, torch.float64)) if key[0] else (x, expand(w, x.dtype))
        _DEFINED[key] = operands, x, w  # which stay, so that no other has their address
    return _DEFINED[key][0]


def _routed(x: Any, w: Any, ids: Any, seconds: float | None = None) -> Any:
    """Experts side by side as one weight, and of each pair's x what is not its expert's nought: a product like the others."""
    flat = ids.flatten().long()
    one = QuantWeight(w.format, w.n, w.k, False, w.tiles[0])
    wide = torch.zeros(len(flat), w.experts, w.k, dtype=torch.float64)
    wide[torch.arange(len(flat)), flat] = _definition("quant_gemv", x, one)[0][torch.arange(len(flat)) // ids.shape[1]]
    every = expand(w, torch.float64).permute(1, 0, 2).flatten(1)
    return _product("grouped_quant", wide.flatten(1), every, seconds).reshape(*ids.shape, w.n)


def _product(name: str, x: Any, w: Any, seconds: float | None = None) -> Any:
    """While a graph is captured nothing is computed."""
    if not LOG.capturing:
        return (x @ w.T).to(torch.bfloat16 if x.dtype == torch.float64 else x.dtype)
    _PENDING[0] += CALL_SECONDS[name] if seconds is None else seconds
    y = x.new_full((x.shape[0], w.shape[0]), float("nan"), dtype=torch.bfloat16 if x.dtype == torch.float64 else x.dtype)
    _WRITES.append((y, x, w))
    return y
