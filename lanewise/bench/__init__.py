"""Measuring: models of true shapes, two arms in turns, the machine's limits beside them, and records that keep every sample."""

from lanewise.bench.ab import Command, CommandPlan, bench_commands
from lanewise.bench.figures import figures
from lanewise.bench.kernel import KernelPlan, bench_kernel
from lanewise.bench.model import Plan, bench_model
from lanewise.bench.problem import Call
from lanewise.bench.shapes import SHAPES, random_model

__all__ = [
    "SHAPES", "Call", "Command", "CommandPlan", "KernelPlan", "Plan", "bench_commands", "bench_kernel", "bench_model", "figures", "random_model",
]  # fmt: skip
