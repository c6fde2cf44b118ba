"""Triton in the environment of an engine: without a compiler for CPUs, which some have."""

from __future__ import annotations

from racegate.interpose.kernels.interpreted.driver import VirtualDriver


def answer_for_triton() -> None:
    """Triton asks its driver for a target and sizes, also where kernels are interpreted."""
    from triton.backends import backends
    from triton.runtime.driver import driver

    backends.pop("cpu", None)
    driver.set_active(VirtualDriver())
