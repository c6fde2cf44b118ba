"""Kernels: each file holds one kernel as Triton source and as an eager NumPy twin."""
