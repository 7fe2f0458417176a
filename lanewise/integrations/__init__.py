"""Lanewise's kernels inside other libraries."""
