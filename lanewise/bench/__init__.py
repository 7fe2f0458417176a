"""Measuring: models of true shapes, the machine's limits beside them, and records that keep every sample."""

from lanewise.bench.figures import figures
from lanewise.bench.model import Plan, bench_model
from lanewise.bench.shapes import SHAPES, random_model

__all__ = ["SHAPES", "Plan", "bench_model", "figures", "random_model"]
