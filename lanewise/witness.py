"""What a process ran, for whoever measures it from outside: LANEWISE_WITNESS names a file that gets lines of JSON.

The engine writes one for each model; a process that only calls the ops of `lanewise.ops` writes one when it ends. Nothing is counted unless the
variable is set. docs/evidence.md says what the fields mean.
"""

import atexit
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import lanewise
from lanewise import dispatch, settings
from lanewise.errors import SettingError
from lanewise.launched import HOME, artifact, described, recorded, target

__all__ = ["SCHEMA", "SCHEMA_VERSION", "append", "package_digest", "place", "sources", "until_exit"]

SCHEMA, SCHEMA_VERSION = "lanewise.engine.witness", 2  # 1 had neither compiler nor compiled


def sources(package: Path | None = None) -> dict[str, str]:
    """The SHA-256 of every source file of the package, by its path from the package's parent."""
    package = package or Path(lanewise.__file__).parent
    return {p.relative_to(package.parent).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(package.rglob("*.py"))}


def package_digest(hashes: Mapping[str, str]) -> str:
    """One hash of a package: that of the lines `sha256sum` prints for its sources, sorted by path."""
    return hashlib.sha256("".join(f"{hashes[path]}  {path}\n" for path in sorted(hashes)).encode()).hexdigest()


def place() -> Path | None:
    """The file that lines are added to; None unless LANEWISE_WITNESS is set."""
    path = settings.get("WITNESS")
    return Path(path).absolute() if path else None


def append(path: Path, line: str) -> None:
    """Add a line to the file. Raises SettingError where it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise SettingError(f"{settings.SETTINGS['WITNESS'].variable} is {str(path)!r}, which cannot be written: {error.strerror}") from None


def until_exit() -> None:
    """Count every kernel that dispatch runs from now on, keep what Triton launches for them and, where any ran, add a line when the process
    ends. Nothing unless LANEWISE_WITNESS is set: then no call pays for it. Raises SettingError for no file to write."""
    path = place()
    if path is None:
        return
    append(path, "")  # what cannot be written is said before anything runs, not after
    until = ExitStack()
    counted = until.enter_context(dispatch.witness())
    launched = _launching(until)
    until.callback(lambda: append(path, json.dumps(_of_ops(counted, launched)) + "\n") if counted else None)
    atexit.register(until.close)


def _launching(until: ExitStack) -> list[Any]:
    """What Triton launches from now on; nothing where there is no Triton."""
    try:
        return until.enter_context(recorded())
    except ImportError:
        return []


def _of_ops(kernels: Counter[str], launched: Sequence[Any] = ()) -> dict[str, Any]:
    """The fields of a model's line, with nothing where there is no model. launched: compiled kernels, of which the project's own are told."""
    ours = [(described(one), one) for one in launched if one.src.fn.__module__.startswith(HOME)]
    ours.sort(key=lambda one: json.dumps(one[0], sort_keys=True))  # threads may launch them in any order
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "lanewise": lanewise.__version__,
        "package": package_digest(sources()),
        "device": _devices(),
        "isa": ", ".join(sorted({target(one) for _, one in ours})) or None,
        "threads": None,
        "code": artifact([one for _, one in ours]) if ours else None,
        "compiler": {"triton": metadata.version("triton")} if ours else None,
        "compiled": [one for one, _ in ours],
        "kernels": dict(sorted(kernels.items())),
        "steps": {"decode": 0, "prefill": 0},
        "prompt": None,
        "prompt_tokens": 0,
        "tokens": None,
        "output_tokens": 0,
    }


def _devices() -> str:
    """The names of the GPUs on which torch had memory, or cpu where it had none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cpu"
    used = [index for index in range(torch.cuda.device_count()) if torch.cuda.max_memory_allocated(index)]
    return ", ".join(dict.fromkeys(str(torch.cuda.get_device_name(index)) for index in used)) or "cpu"
