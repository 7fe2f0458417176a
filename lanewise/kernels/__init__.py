"""Kernels: one room for each way of running them."""
