"""The reference backend: plain numpy in float32, readable enough to be the definition of every op."""

from lanewise.backends.reference import kernels  # noqa: F401  (importing it fills the registry)
from lanewise.backends.reference.runner import ReferenceBackend, ReferenceRunner

__all__ = ["ReferenceBackend", "ReferenceRunner"]
