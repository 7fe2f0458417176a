"""`bench kernel` on a GPU: the op as a user calls it, captured in CUDA graphs over rotating weights, and timed by the GPU's events.

The arms are an op as it is and with its kernels out of dispatch, and of quantized weights also what a user without these kernels would run. Dispatch
happens while a graph is captured, under the eyes of a witness; replays run what was captured.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from lanewise.bench.gpu_code import ARMS, EXPANDER, GpuArm, blas_artifact
from lanewise.bench.gpu_operands import Operands, operands
from lanewise.bench.gpu_probes import GpuLimits
from lanewise.bench.kernel import KernelPlan, probed
from lanewise.bench.machine import machine, versions
from lanewise.bench.manifest import sources
from lanewise.bench.problem import Call
from lanewise.bench.replay import TYPES, Gpu, gpu_index
from lanewise.contract import Problem
from lanewise.errors import EvidenceError, LanewiseError
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu import experts, linear, quant  # noqa: F401  (importing them fills the registry)
from lanewise.launched import artifact, described, recorded

__all__ = ["Cuda"]

_MOST_NODES = 2048  # of a graph
_NODES = 400
_GRAPH_SECONDS = 1e-3  # that a graph lasts about
# Seconds; bytes and operations a second: what no GPU at hand exceeds.
_FASTEST_CALL, _FASTEST_READ, _FASTEST_PRODUCTS = 2e-6, 5e12, 1e15


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
        self._operands: tuple[int, Operands] | None = None

    @property
    def cache(self) -> int | None:
        return self._gpu.cache

    def check(self, plan: KernelPlan) -> tuple[Named, Named]:
        call = plan.call
        if call.op not in ARMS or call.dtype not in TYPES:
            raise LanewiseError(f"{call} on {plan.device}; what is measured there is {', '.join(ARMS)} in {' or '.join(TYPES)}")
        if plan.threads is not None:
            raise EvidenceError(f"{plan.threads} threads were asked for; on a GPU there are none to choose")
        arms = ARMS[call.op]
        for label in plan.arms:
            if label not in arms:
                raise EvidenceError(f"there is no arm {label[:64]!r}; arms of {call.op} on {plan.device} are {', '.join(arms)}")
            with _switched(arms[label]):
                kernel = dispatch.select(_problem(call, arms[label], self._arch, self._card), arms[label].body).kernel.name
            if label == "quantized" and kernel != "quant_gemv":
                raise EvidenceError(f"{call} runs {kernel}, which takes x as it is; {label} is quant_gemv on an x that was quantized before")
        if plan.arms[0] == plan.arms[1]:
            raise EvidenceError(f"{plan.arms[0]} and {plan.arms[1]} are the same arm; an A/B run compares two, and measures A/A beside them")
        a, b = (Named(label, arms[label].body, None) for label in plan.arms)
        return a, b

    def arm(self, name: Named, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> Arm:
        if self._operands is None or self._operands[0] != copies:
            self._operands = None
            self._operands = copies, operands(self._gpu, self._arch, self._card, call, inputs, copies)
        return _Captured(self._gpu, self._name, self._arch, self._card, name, call, self._operands[1], copies)

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


@contextmanager
def _switched(arm: GpuArm) -> Iterator[None]:
    with ExitStack() as settled:
        for name in arm.switches:
            settled.enter_context(settings.switched(name, arm.switch))
        yield


def _problem(call: Call, arm: GpuArm, row: Arch, card: str | None) -> Problem:
    """The call as the guards of an arm's op see it: weights that were expanded before have no format."""
    return replace(call.problem(row), op=arm.op, format=call.fmt if arm.op == call.op else None, card=card)


class _Captured:
    """An arm: its op in a graph that goes over all copies a whole number of times."""

    def __init__(self, gpu: Gpu, device: str, row: Arch, card: str | None, name: Named, call: Call, given: Operands, copies: int) -> None:
        arm, ready = ARMS[call.op][name.label], given.ready(name.label)
        self._gpu, self._call, self._row, self._label, self.nbytes = gpu, call, row, name.label, ready.nbytes
        turns = 1 if arm.expands else _turns(copies, self.nbytes, call.facts()["operations"])  # hundreds of nodes a call
        with _switched(arm), dispatch.witness() as ran, recorded() as kernels:
            kernel = dispatch.select(_problem(call, arm, row, card), arm.body).kernel
            self._piece = gpu.capture(ready.run, copies * turns)
        if set(ran) != {kernel.name} and not (name.label == "quantized" and not ran):  # that one is called without dispatch
            raise EvidenceError(f"arm {name.label} ran {', '.join(ran) or 'nothing'} where it was to run {kernel.name}")
        self._ready = ready  # what the graph reads belongs to it: a call that holds quantized activations is their only owner
        self._kernel, self._body, self._replays, self.calls = kernel.name, arm.body, 0, self._piece.calls
        self.spec = {"device": device, "body": arm.body, "isa": row.name, "kernels": [kernel.name], "calls": self.calls, "switch": arm.switch}
        if kernels:
            self.spec["compiled"] = [described(one) for one in kernels]
        self._right: Any = None
        if arm.body == "gpu":
            if not kernels:
                raise EvidenceError(f"arm {name.label} launched no kernel of Triton; what ran cannot be told")
            self._piece.result.fill_(float("nan"))
            gpu.run(self._piece)
            share = given.share(self._piece.result, kernel.name)
            if not share <= 1:
                raise EvidenceError(f"arm {name.label} gives a wrong result: {share:.3g} times the error that is allowed; it is not measured")
            self._right = self._piece.result.clone()
        expander = sources()[EXPANDER] if arm.expands else None
        self.artifact = artifact(kernels) if kernels else blas_artifact(gpu_versions(), expander)

    def seconds(self, repeats: int) -> tuple[int, float]:
        self._replays += 1 + repeats
        return self._gpu.seconds(self._piece, repeats)

    def output(self) -> NDArray[np.float32]:
        if self._right is not None and not torch.equal(self._right, self._piece.result):
            raise EvidenceError(f"arm {self._label} gave another result at the end than at the start, where it was right; nothing of it counts")
        found: NDArray[np.float32] = self._piece.result.float().cpu().numpy()
        return found

    def witness(self) -> dict[str, Any]:
        calls = self._replays * self.calls
        return {"kernel": self._kernel, "body": self._body, "isa": self._row.name, "calls": calls, "m": self._call.m}


def _turns(copies: int, nbytes: int, operations: int) -> int:
    """Rotations of a graph: so many calls that launching it does not show, and few enough to capture at once."""
    wanted = ceil(_GRAPH_SECONDS / max(_FASTEST_CALL, nbytes / _FASTEST_READ, operations / _FASTEST_PRODUCTS))
    return max(1, min(ceil(wanted / copies), _NODES // copies))
