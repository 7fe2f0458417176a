"""`bench kernel` on a GPU: the op as a user calls it, captured in CUDA graphs over rotating weights, and timed by the GPU's events.

The arms are `linear` as it is and with the skinny kernel out of dispatch. Dispatch happens while a graph is captured, under the eyes of a
witness; replays run what was captured.
"""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise import dispatch, settings
from lanewise.arch import Arch
from lanewise.bench.arms import Arm, Named
from lanewise.bench.around import GPU_RULE, look
from lanewise.bench.gpu_around import watch
from lanewise.bench.gpu_card import card_facts, gpu_versions
from lanewise.bench.gpu_code import ARMS, artifact, blas_artifact, described, recorded
from lanewise.bench.gpu_probes import GpuLimits
from lanewise.bench.kernel import KernelPlan, probed
from lanewise.bench.machine import machine, versions
from lanewise.bench.problem import Call
from lanewise.bench.replay import TYPES, Gpu, gpu_index
from lanewise.bench.right import require_right
from lanewise.errors import EvidenceError, LanewiseError
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu import linear  # noqa: F401  (importing it fills the registry)

__all__ = ["Cuda"]

_MOST_NODES = 2048  # of a graph
_NODES = 400
_GRAPH_SECONDS = 1e-3  # that a graph lasts about
_FASTEST_CALL, _FASTEST_READ = 2e-6, 5e12  # seconds; bytes a second: what no GPU at hand exceeds


class Cuda:
    """One GPU as a place where arms run."""

    threads = 1
    most: int | None = _MOST_NODES
    rule = GPU_RULE

    def __init__(self, plan: KernelPlan) -> None:
        self._name, self._plan = plan.device, plan
        self._gpu = Gpu(gpu_index(plan.device))
        self._watch = watch(self._gpu.properties)
        called, self._card = devices.named(self._gpu.device)
        self._arch = devices.row(called)
        self._limits: GpuLimits | None = None
        self._operands: tuple[int, Any, Any] | None = None

    @property
    def cache(self) -> int | None:
        return self._gpu.cache

    def check(self, plan: KernelPlan) -> tuple[Named, Named]:
        call = plan.call
        if call.op != "linear" or call.dtype not in TYPES:
            raise LanewiseError(f"{call} on {plan.device}; what is measured there is linear in {' or '.join(TYPES)}")
        if plan.threads is not None:
            raise EvidenceError(f"{plan.threads} threads were asked for; on a GPU there are none to choose")
        for label in plan.arms:
            if label not in ARMS:
                raise EvidenceError(f"there is no arm {label[:64]!r}; arms of {plan.device} are {', '.join(ARMS)}")
            dispatch.select(replace(call.problem(self._arch), card=self._card), ARMS[label][0])
        if plan.arms[0] == plan.arms[1]:
            raise EvidenceError(f"{plan.arms[0]} and {plan.arms[1]} are the same arm; an A/B run compares two, and measures A/A beside them")
        a, b = (Named(label, ARMS[label][0], None) for label in plan.arms)
        return a, b

    def arm(self, name: Named, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> Arm:
        if self._operands is None or self._operands[0] != copies:
            self._operands = None
            x, w = (_tensor(inputs[name]).to(self._gpu.device) for name in ("x", "w"))
            self._operands = copies, x, self._gpu.copies(w, copies)
        _, x, w = self._operands
        return _Captured(self._gpu, self._name, self._arch, name, call, x, w)

    def probes(self) -> dict[str, Any]:
        if self._limits is None:
            self._limits = GpuLimits(self._gpu, TYPES[self._plan.call.dtype])
        return probed(read=self._limits.read(), float=self._limits.products())

    def look(self) -> dict[str, Any]:
        return {**look(), "gpu": self._watch.read()}

    def facts(self) -> dict[str, Any]:
        gpu = card_facts(self._gpu.properties, self._arch, self.cache, self._watch.driver)
        return {"machine": {**machine(), "last_level_cache": self.cache, "gpu": gpu}, "versions": {**versions(), **gpu_versions()}}

    def close(self) -> None:
        self._operands = self._limits = None
        self._gpu.close()


def _tensor(array: NDArray[Any]) -> Any:
    """bf16, which numpy has not, comes as its bits. Copied, as what was drawn is not written to."""
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array.copy())


class _Captured:
    """An arm: `linear` in a graph that goes over all copies a whole number of times."""

    def __init__(self, gpu: Gpu, device: str, row: Arch, name: Named, call: Call, x: Any, w: list[Any]) -> None:
        from lanewise import ops

        body, switch = ARMS[name.label]
        self._gpu, self._call, self._row, self.nbytes = gpu, call, row, w[0].nbytes
        with settings.switched("SKINNY", switch), dispatch.witness() as ran, recorded() as kernels:
            self._piece = gpu.capture(lambda i: ops.linear(x, w[i % len(w)], constant_w=True), len(w) * _turns(len(w), self.nbytes))
        kernel = next(one for one in dispatch.kernels("linear") if one.body == body)
        if set(ran) != {kernel.name}:
            raise EvidenceError(f"arm {name.label} ran {', '.join(ran) or 'nothing'} where it was to run {kernel.name}")
        self._kernel, self._body, self._replays, self.calls = kernel.name, body, 0, self._piece.calls
        self.spec = {"device": device, "body": body, "isa": row.name, "kernels": [kernel.name], "calls": self.calls, "switch": switch}
        if kernels:
            self.spec["compiled"] = [described(one) for one in kernels]
        if body == "gpu":
            if not kernels:
                raise EvidenceError(f"arm {name.label} launched no kernel of Triton; what ran cannot be told")
            self._piece.result.fill_(float("nan"))
            gpu.run(self._piece)
            require_right(self._piece.result, x, w[0], call.dtype, f"arm {name.label}")
        self.artifact = artifact(kernels) if kernels else blas_artifact(gpu_versions())

    def seconds(self, repeats: int) -> tuple[int, float]:
        self._replays += 1 + repeats
        return self._gpu.seconds(self._piece, repeats)

    def output(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._piece.result.float().cpu().numpy()
        return found

    def witness(self) -> dict[str, Any]:
        calls = self._replays * self.calls
        return {"kernel": self._kernel, "body": self._body, "isa": self._row.name, "calls": calls, "m": self._call.m}


def _turns(copies: int, nbytes: int) -> int:
    """Rotations of a graph: so many calls that launching it does not show, and few enough to capture at once."""
    wanted = ceil(_GRAPH_SECONDS / max(_FASTEST_CALL, nbytes / _FASTEST_READ))
    return max(1, min(ceil(wanted / copies), _NODES // copies))
