"""The Triton kernels that a library's tests launched, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from racegate.history.finding import KernelTotal
from racegate.scenario.untrusted.text import many, printable


def print_kernels(console: Console, kernels: Sequence[KernelTotal]) -> None:
    """Kernels with findings first, then those of which not all can be told."""
    if not kernels:
        console.print("no Triton kernel was launched, or none was looked at from inside")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "place"):
        table.add_column(name, overflow="fold")
    for name in ("launches", "programs"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for one in sorted(kernels, key=lambda one: (-one.findings, -one.untold)):
        place = f"{Path(one.file).name}:{one.line}"
        table.add_row(
            printable(one.name), printable(place), str(one.launches), str(one.programs), said(one)
        )
    console.print(table)


def said(kernel: KernelTotal) -> str:
    """The verdict on a kernel, in words."""
    if kernel.findings:
        return many(kernel.findings, "race")
    if kernel.untold:
        return f"clean, {kernel.untold} not told"
    return "clean"
