"""A random model small enough to measure in a moment, and the size of a read probe that takes no longer."""

from lanewise.bench.shapes import ModelShape

SMALL = ModelShape("qwen3", 256, 2, 4, 2, 64, 512, 320, 256, True, 1e6, 1e-6)
PROBE = 1 << 21
