"""GPU kernels in Triton. Importing this folder, its contracts and its tables loads neither torch nor triton; the kernels themselves do."""
