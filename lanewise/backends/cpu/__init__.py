"""The cpu backend: compiled kernels on quantized weights, and threads that walk a step without Python. Importing it loads no compiler."""
