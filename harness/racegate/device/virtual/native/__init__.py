"""The exact kernels in C, and how they are loaded."""
