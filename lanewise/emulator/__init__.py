"""Runs AMD's machine code on a CPU: what a card would compute, or where the kernel does what no card forgives."""
