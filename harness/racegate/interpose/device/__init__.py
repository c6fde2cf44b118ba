"""The virtual device: memory, lanes, the queue of pending work, and the native CUDA runtime.

Knows CUDA's calls and what they order; imports no torch. What its operations compute is the
business of `kernels/`.
"""
