"""What proves kernels: cases, guarded memory, comparison with the oracle, on the CPU in Triton's interpreter and on real cards."""
