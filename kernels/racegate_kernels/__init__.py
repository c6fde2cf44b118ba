"""Kernels: one per file, as Triton source with its launcher and as an eager twin in NumPy, with one
signature; `backend` is the set of them that a device runs.

One source serves exact and float numerics; `numerics` holds what differs. Change both twins
together (tests/kernels compares them), and keep indices outside a buffer poison on both.
Nothing here knows the harness: arrays in, arrays out.

PYTEST_DONT_REWRITE: pytest may begin in a process that has imported this, and would warn of it.
"""
