"""The cpu backend: compiled kernels on quantized weights, and threads that walk a step without Python."""

from lanewise.backends.cpu.runner import CpuBackend, CpuRunner

__all__ = ["CpuBackend", "CpuRunner"]
