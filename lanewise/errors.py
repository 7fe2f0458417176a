"""What can go wrong for a user, as types. Every message is one line: what was given, what would be accepted.

The command line prints the message of a `LanewiseError` and exits with 2; any other exception is a bug in Lanewise.
"""

from collections.abc import Iterable
from os import PathLike

__all__ = [
    "AssemblyError",
    "CompilerError",
    "ContextLengthError",
    "DeviceError",
    "EmulatorLimitError",
    "EvidenceError",
    "FormatError",
    "KernelFaultError",
    "LanewiseError",
    "ModelError",
    "ModelFileError",
    "NoKernelError",
    "PromptError",
    "SamplingError",
    "SettingError",
    "ShapeError",
    "TemplateError",
    "TokenizerError",
    "UnknownOpError",
    "UnknownTargetError",
    "UnsupportedModelError",
]


class LanewiseError(Exception):
    """The user's input cannot be used; the message says what, where and what to do, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UnknownTargetError(LanewiseError):
    """A target name that `arch.parse` does not know."""


class AssemblyError(LanewiseError):
    """Machine code, or its text, that cannot be read: what stands there, and what is read."""


class CompilerError(LanewiseError):
    """A kernel that a compiler refuses for a target; the reason is the compiler's."""


class EvidenceError(LanewiseError):
    """A measurement that would prove nothing, a run that is in another's way, or a bundle that cannot be read or written."""


class UnknownOpError(LanewiseError):
    """An op that `contract.OPS` does not have."""


class ModelError(LanewiseError):
    """A model that loads and gives no usable numbers, or that was closed."""


class SettingError(LanewiseError):
    """A LANEWISE_* variable whose value cannot be read."""


class FormatError(LanewiseError):
    """A block format that does not exist, or data that does not fit it."""


class ShapeError(LanewiseError):
    """An operand whose shape, dtype or strides an op does not take."""


class DeviceError(LanewiseError):
    """A device that is not there, or that this build has no backend for."""


class KernelFaultError(LanewiseError):
    """What a kernel did that no card would forgive, or not always. `at` says where: an `emulator.fault.Place`."""

    def __init__(self, message: str, at: object = None) -> None:
        super().__init__(message)
        self.at = at


class EmulatorLimitError(LanewiseError):
    """An instruction, a modifier or a launch that the emulator does not have; nothing was skipped."""


class UnsupportedModelError(LanewiseError):
    """A well-formed model that Lanewise has no spec for."""


class TokenizerError(LanewiseError):
    """Tokenizer data that is missing, inconsistent or of an unknown kind."""


class TemplateError(LanewiseError):
    """A chat template that failed, was refused by the sandbox, or ran out of its limits."""


class SamplingError(LanewiseError):
    """A sampling parameter out of its range."""


class PromptError(LanewiseError):
    """What was passed as a prompt is none."""


class ContextLengthError(LanewiseError):
    """A prompt that does not fit the context, a context that the model does not have, or a KV cache without room."""


class ModelFileError(LanewiseError):
    """A model file that is broken, hostile or not a model file: which file, which field, its value, what is allowed."""

    def __init__(self, file: str | PathLike[str], field: str, value: object, allowed: str) -> None:
        self.file, self.field, self.value, self.allowed = str(file), field, value, allowed
        super().__init__(f"{self.file}: {field} is {_short(value)}; {allowed}")


class NoKernelError(LanewiseError):
    """No kernel accepts a problem. `refusals` holds every reason, one for each kernel that was asked."""

    def __init__(self, problem: object, refusals: Iterable[object]) -> None:
        self.refusals = tuple(refusals)
        reasons = "; ".join(str(r) for r in self.refusals) or "no kernel is registered for this op"
        super().__init__(f"no kernel for {problem}: {reasons}")


def _short(value: object, limit: int = 80) -> str:
    """repr(value), cut to `limit` characters before it is built: a hostile value may be megabytes long."""
    if isinstance(value, str | bytes) and len(value) > limit:
        return f"{value[:limit]!r}... ({len(value)} long)"
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
