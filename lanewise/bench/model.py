"""How fast a model runs: prompts of several lengths and decoding, in interleaved rounds, each with the machine's limits beside it.

Steps of the runner are timed, without tokenizer and sampling. Prompts are random tokens in an empty cache; decoding also starts there.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.backends import Batch, Progress, Runner, backend_for
from lanewise.bench.figures import figures, residency
from lanewise.bench.limits import Limits, probe_bytes
from lanewise.bench.lock import held
from lanewise.bench.machine import commit, last_level_cache, machine, peak_memory, settings_now, surroundings, versions
from lanewise.engine.pages import PAGE_SIZE, pages_for
from lanewise.engine.witness import Witness, token_digest, watching
from lanewise.errors import ContextLengthError, DeviceError, LanewiseError
from lanewise.files import ModelFile
from lanewise.models import ModelSpec, spec_of

__all__ = ["SCHEMA", "SCHEMA_VERSION", "Plan", "bench_model", "prompt_ids"]

SCHEMA, SCHEMA_VERSION = "lanewise.bench.model", 2
_PROFILES = 5  # profiled steps of a phase, each beside a plain one
_WARM = 8  # steps of a phase that are run before the rounds


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. prompts: lengths in tokens; tokens: decoded in a round, 0 for none; chunk: most tokens of a prefill step.

    probe: bytes that the read probe reads; 4 last-level caches, at most 1 GB, when None. Raises LanewiseError for what makes no sense.
    """

    prompts: tuple[int, ...] = (28, 128, 512)
    tokens: int = 128
    rounds: int = 5
    device: str = "cpu"
    threads: int | None = None
    profile: bool = False
    chunk: int = 512
    probe: int | None = None

    def __post_init__(self) -> None:
        if min(self.prompts, default=1) < 1 or len(set(self.prompts)) < len(self.prompts):
            raise LanewiseError(f"prompt lengths are {', '.join(map(str, self.prompts))}; they are different positive numbers of tokens")
        if self.tokens < 0 or not (self.prompts or self.tokens):
            raise LanewiseError(f"{self.tokens} tokens to decode and {len(self.prompts)} prompts; there is at least one of them")
        if self.rounds < 1:
            raise LanewiseError(f"{self.rounds} rounds were asked for; at least 1 is needed")
        if self.profile and self.device != "cpu":
            raise DeviceError(f"a profile needs the cpu device; this is {self.device!r}")


@dataclass(frozen=True, slots=True)
class _Phase:
    """One thing that is timed: a prompt of `tokens` tokens, or as many decode steps."""

    name: str
    kind: str
    tokens: int
    batches: tuple[Batch, ...]

    @property
    def ids(self) -> list[int]:
        return [int(token) for batch in self.batches for token in batch.tokens]


def bench_model(file: ModelFile, plan: Plan, command: Sequence[str] = (), progress: Progress | None = None) -> dict[str, Any]:
    """The record of a run: what ran where, every sample, and the figures that follow from them (fields in docs/user.md).

    Raises what loading the model raises, ContextLengthError for a prompt that the model does not take, DeviceError for too little memory,
    EvidenceError while another measurement is under way.
    """
    with held("cpu"):  # the reference is numpy on the same cores
        return _bench_model(file, plan, command, progress)


def _bench_model(file: ModelFile, plan: Plan, command: Sequence[str], progress: Progress | None) -> dict[str, Any]:
    began, backend = datetime.now(UTC), backend_for(plan.device)
    spec = spec_of(file)
    longest = max((*plan.prompts, plan.tokens))
    if longest > spec.context:
        raise ContextLengthError(f"{longest} tokens were asked for; {file.path} takes {spec.context}")
    runner = backend.lower(spec, file, progress, plan.threads)
    try:
        runner.allocate(pages_for(longest), PAGE_SIZE)
        witness = watching(runner, plan.device)
        model, phases = _model(file, spec, plan.device), _phases(spec, plan)
        for phase in phases:  # programs are built, and memory is touched, before anything counts
            _timed(runner, phase.batches[:_WARM])
        peak = peak_memory()
        limits, threads = _limits(runner, plan)
        rounds = [_round(number, runner, phases, limits, model["weight_bytes"], plan, progress, witness) for number in range(plan.rounds)]
        profile = _profile(runner, phases) if plan.profile else None
        if witness:
            witness.close()
    finally:
        runner.close()
    facts = machine()
    run = {
        **asdict(plan),
        "threads": threads,
        "isa": limits.isa.name,
        "probe": limits.nbytes,
        "peak_memory": peak,
        "residency": residency(model["weight_bytes"], facts["last_level_cache"]),
        "notes": list(runner.notes),
        "vocab": spec.vocab,
        "prompt": {phase.name: token_digest([phase.ids]) for phase in phases},
    }
    record = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "began": began.isoformat(),
        "ended": datetime.now(UTC).isoformat(),
        "commit": commit(),
        "versions": versions(),
        "settings": settings_now(),
        "machine": facts,
        "model": {**model, "sha256": {part.name: _digest(part) for part in file.files}},
        "run": run,
        "rounds": rounds,
        "profile": profile,
    }
    return {**record, "figures": figures(record)}


def prompt_ids(vocab: int, longest: int) -> NDArray[np.int32]:
    """The token ids of which every phase takes as many as it has, from the first on: the same in every run of a vocabulary."""
    return np.random.default_rng(0).integers(0, vocab, longest, np.int32)


def _phases(spec: ModelSpec, plan: Plan) -> list[_Phase]:
    ids = prompt_ids(spec.vocab, max((*plan.prompts, plan.tokens)))
    found = [_Phase(f"pp{length}", "prefill", length, _batches(ids[:length], plan.chunk, every=False)) for length in plan.prompts]
    return found + ([_Phase(f"tg{plan.tokens}", "decode", plan.tokens, _batches(ids[: plan.tokens], 1, every=True))] if plan.tokens else [])


def _batches(ids: NDArray[np.int32], chunk: int, *, every: bool) -> tuple[Batch, ...]:
    """Steps of up to `chunk` tokens that write one sequence; logits are wanted after `every` step, or after the last alone."""
    table = np.arange(pages_for(len(ids)), dtype=np.int32)[None]
    found = []
    for start in range(0, len(ids), chunk):
        positions = np.arange(start, min(start + chunk, len(ids)), dtype=np.int32)
        rows = len(positions)
        found.append(
            Batch(
                tokens=ids[positions],
                positions=positions,
                slots=positions,  # page i is the i-th of the sequence
                query_start=np.array([0, rows], np.int32),
                context=np.array([start + rows], np.int32),
                page_table=table,
                logit_rows=np.array([rows - 1] if every or start + rows == len(ids) else [], np.int32),
            )
        )
    return tuple(found)


def _timed(runner: Runner, batches: Sequence[Batch]) -> tuple[list[float], list[int]]:
    """Seconds of every step, and the likeliest token behind each row whose logits are wanted, found while no clock runs."""
    took, likeliest = [], []
    for batch in batches:
        began = time.perf_counter()
        logits = runner.step(batch)
        took.append(time.perf_counter() - began)
        likeliest += logits.argmax(axis=-1).tolist()
    return took, likeliest


def _round(
    number: int,
    runner: Runner,
    phases: Sequence[_Phase],
    limits: Limits,
    weight_bytes: int,
    plan: Plan,
    progress: Progress | None,
    witness: Witness | None,
) -> dict[str, Any]:
    """Every probe and every phase once; odd rounds go backwards, so that none always follows the same other."""
    before, probed, timed = surroundings(), {}, {}
    probes = {"read": limits.read, "read_at_size": lambda: limits.read(weight_bytes), "int8": limits.int8}
    by_name = {phase.name: phase for phase in phases}
    order = [*probes, *by_name][:: 1 if number % 2 == 0 else -1]
    for name in order:
        if name in probes:
            probed[name] = asdict(probes[name]())
        else:
            phase = by_name[name]
            seconds, likeliest = _timed(runner, phase.batches)
            if witness:
                witness.answered(phase.ids, likeliest)
            timed[name] = {"kind": phase.kind, "tokens": phase.tokens, "seconds": seconds, "output": token_digest([likeliest])}
    if progress:
        progress("round", number + 1, plan.rounds)
    of_probes, of_phases = {name: probed[name] for name in probes}, {name: timed[name] for name in by_name}
    return {"order": order, "before": before, "after": surroundings(), "probes": of_probes, "phases": of_phases}


def _limits(runner: Runner, plan: Plan) -> tuple[Limits, int | None]:
    """The probes, on the runner's own threads, and how many those are; a backend without such threads gets its own probes' as a yardstick."""
    from lanewise.backends.cpu.runner import CpuRunner
    from lanewise.kernels.cpu.isa import selected
    from lanewise.kernels.cpu.threads import ThreadPool, physical_cores

    nbytes = plan.probe or probe_bytes(last_level_cache())
    if isinstance(runner, CpuRunner):
        return Limits(runner.pool, runner.model.library.isa, nbytes), runner.pool.threads
    isa = selected()
    return Limits(ThreadPool(isa, plan.threads or physical_cores()), isa, nbytes), None


def _profile(runner: Runner, phases: Sequence[_Phase]) -> dict[str, Any]:
    """Of the last decode step and of the last step of the longest prompt: every pass's ops, and a plain step beside each."""
    from lanewise.backends.cpu.profile import Profiler
    from lanewise.backends.cpu.runner import CpuRunner

    assert isinstance(runner, CpuRunner), "the plan refuses a profile of any other"
    profiler, found = Profiler(runner), {}
    prompts = [phase for phase in phases if phase.kind == "prefill"]
    chosen = [phase for phase in phases if phase.kind == "decode"] + ([max(prompts, key=lambda phase: phase.tokens)] if prompts else [])
    for phase in chosen:
        batch = phase.batches[-1]
        passes, plain = [], []
        for _ in range(_PROFILES):
            plain += _timed(runner, [batch])[0]
            passes.append([asdict(op) for op in profiler.step(batch)])
        ops = [{**op, "seconds": [one[i]["seconds"] for one in passes]} for i, op in enumerate(passes[0])]
        found[phase.name] = {"rows": len(batch.tokens), "context": int(batch.context[0]), "plain_seconds": plain, "ops": ops}
    return found


def _model(file: ModelFile, spec: ModelSpec, device: str) -> dict[str, Any]:
    """Sizes. weight_bytes: what a token reads, as the device holds it. layer_macs: multiplications by weights for a token;
    head_macs: for the logits of one."""
    read = [file.tensor(w.name) for w in spec.weights() if w != spec.embedding or w == spec.head.weight]
    layers = sum(prod(w.shape) for w in spec.weights() if len(w.shape) == 2 and w not in (spec.embedding, spec.head.weight))
    formats = Counter(tensor.format.name for tensor in file.tensors.values() if len(tensor.shape) == 2)
    return {
        "name": file.path.name,
        "random": not file.files,
        "parameters": spec.parameters,
        "formats": dict(formats.most_common()),
        "file_bytes": file.nbytes,
        "weight_bytes": sum(4 * t.elements if device == "reference" else t.nbytes for t in read),
        "layer_macs": layers,
        "head_macs": prod(spec.head.weight.shape),
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
