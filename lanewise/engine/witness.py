"""What a model ran, for whoever measures it from outside: its line in the file that LANEWISE_WITNESS names (`lanewise.witness`).

Nothing is watched unless the variable is set. docs/evidence.md says what the fields mean.
"""

import atexit
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lanewise
from lanewise import dispatch
from lanewise.backends import Batch, Runner
from lanewise.witness import SCHEMA, SCHEMA_VERSION, append, package_digest, place, sources

__all__ = ["Witness", "token_digest", "watching"]


def token_digest(sequences: Iterable[Iterable[int]]) -> str:
    """The SHA-256 of token ids, one line a sequence, in decimal with a blank between: anyone can write them so.

    >>> token_digest([[1, 2], [3]])[:12]
    '0b7c61ec062a'
    """
    return hashlib.sha256("".join(" ".join(map(str, ids)) + "\n" for ids in sequences).encode()).hexdigest()


def _compiler() -> dict[str, str]:
    """What machine code of the processor is made with."""
    import llvmlite
    from llvmlite.binding import llvm_version_info

    return {"llvmlite": str(llvmlite.__version__), "llvm": ".".join(map(str, llvm_version_info))}


def watching(runner: Runner, device: str) -> "Witness | None":
    """A witness of all that the runner does from now on; None unless LANEWISE_WITNESS is set. Raises SettingError for no file to write."""
    path = place()
    return Witness(runner, device, path) if path else None


class Witness:
    """Counts the kernels and steps of one runner, and keeps the token ids that went in and came out, until it is closed."""

    def __init__(self, runner: Runner, device: str, path: Path) -> None:
        from lanewise.backends.cpu.runner import CpuRunner

        self._device, self._runner = device, runner
        append(path, "")  # what cannot be written is said before a model runs, not after
        self._steps, self._walked = {"decode": 0, "prefill": 0}, Counter[int]()
        self._prompts: list[list[int]] = []
        self._answers: list[list[int]] = []
        self._open = ExitStack()
        self._called = self._open.enter_context(dispatch.witness())
        self._open.callback(lambda: append(path, json.dumps(self._said()) + "\n"))
        atexit.register(self._open.close)  # a model that nobody closed has run all the same
        # Set on this one runner: a backend knows nothing of who watches it, and nobody pays who does not ask.
        runner.__dict__["step"] = self._stepping(runner.step)
        if isinstance(runner, CpuRunner):  # it walks tables of kernels that were chosen when a table was made
            runner.__dict__["run"] = self._walking(runner.run)

    def answered(self, prompt: Iterable[int], answer: Iterable[int]) -> None:
        """Token ids of a prompt, and of what came out of it."""
        self._prompts.append(list(prompt))
        self._answers.append(list(answer))

    def close(self) -> None:
        """Write the line; the second time nothing. The runner must still be open."""
        self._open.close()
        atexit.unregister(self._open.close)

    def _said(self) -> dict[str, Any]:
        threads, isa, code, kernels = self._compiled()
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "lanewise": lanewise.__version__,
            "package": package_digest(sources()),
            "device": self._device,
            "isa": isa,
            "threads": threads,
            "code": code,
            "compiler": _compiler() if code else None,
            "compiled": [],
            "kernels": dict(sorted((kernels + self._called).items())),
            "steps": self._steps,
            "prompt": token_digest(self._prompts),
            "prompt_tokens": sum(map(len, self._prompts)),
            "tokens": token_digest(self._answers),
            "output_tokens": sum(map(len, self._answers)),
        }

    def _compiled(self) -> tuple[int | None, str | None, str | None, Counter[str]]:
        """Threads, instruction set, SHA-256 of the machine code and calls of what was compiled; nothing where nothing is."""
        from lanewise.backends.cpu.program import kernels_of
        from lanewise.backends.cpu.runner import CpuRunner
        from lanewise.kernels.cpu.compile import loaded_object

        if not isinstance(self._runner, CpuRunner):
            return None, None, None, Counter()
        model = self._runner.model
        library, formats = model.library, {weight: packed.format for weight, packed in model.packed.items()}
        there = {library.address(kernel.name): kernel for kernel in kernels_of(model.spec, model.embedding.format.name, formats)}
        walked = {address: count for address, count in self._walked.items() if address in there}  # a profiler's clock is none of the model's
        ran = {there[address].name: there[address] for address in walked}
        code = hashlib.sha256(b"".join(loaded_object(ran[name], library.isa) for name in sorted(ran))).hexdigest()
        calls = Counter({there[address].name: count for address, count in walked.items()})
        return self._runner.pool.threads, library.isa.name, code, calls

    def _stepping(self, plain: Callable[[Batch], NDArray[np.float32]]) -> Callable[[Batch], NDArray[np.float32]]:
        def step(batch: Batch) -> NDArray[np.float32]:
            self._steps["prefill" if np.diff(batch.query_start).max(initial=0) > 1 else "decode"] += 1
            return plain(batch)

        return step

    def _walking(self, plain: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(program: Any) -> None:
            plain(program)
            addresses, counts = np.unique(program.ops[:, 0], return_counts=True)
            self._walked.update(dict(zip(addresses.tolist(), counts.tolist(), strict=True)))

        return run
