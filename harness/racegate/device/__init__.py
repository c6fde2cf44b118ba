"""Devices: one protocol, a virtual device on the CPU and (with a GPU) the CUDA device."""
