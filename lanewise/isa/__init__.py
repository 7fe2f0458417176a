"""What compilers make of GPU kernels for targets that are not here: assembly, code objects, and what must stand in them."""
