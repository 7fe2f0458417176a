"""Wrong kernels, each wrong in one way: what the proof must notice, and where it did."""
