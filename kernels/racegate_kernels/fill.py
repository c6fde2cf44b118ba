"""Filling of memory with one value."""

from __future__ import annotations

from racegate_kernels.numerics import Array


def fill_eager(x: Array, *, value: int) -> None:
    """Every element becomes `value`. x: any shape, int32, written"""
    x[...] = value


def fill_triton(x: Array, *, value: int) -> None:
    """The same on torch tensors. Not by assignment: that copies the value from the host, and waits
    for the copy.
    """
    x.fill_(value)
