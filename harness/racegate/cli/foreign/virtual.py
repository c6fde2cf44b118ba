"""Options of the virtual device under a program."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from racegate.cli.options import fail
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import CompileMode


def _bytes_of(size: str | int) -> int:
    """Of `512M` or `8G`; the default is a number. Raises BadInput."""
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"([1-9]\d{0,5})([MG])", size)
    if found is None:
        raise BadInput(f"--memory {size}: a number and M or G (MiB or GiB) is expected, as in 8G")
    return int(found[1]) << (20 if found[2] == "M" else 30)


CompileOption = Annotated[
    CompileMode | None,
    typer.Option(
        "--compile",
        show_default=False,
        help="How regions run that torch.compile is given: as Inductor compiled them, or as plain "
        "Python. As compiled, if it is not given and this torch can.",
    ),
]
MemoryOption = Annotated[
    int,
    typer.Option(
        metavar="SIZE",
        parser=_bytes_of,
        show_default=False,
        help="Of the virtual device, as 8G, in the place of that of --gpu or half of the host's.",
    ),
]
RanksOption = Annotated[
    int,
    typer.Option(
        "--ranks",
        min=0,
        max=64,
        metavar="N",
        show_default=False,
        help="Run it as N ranks, as torchrun would, each with a virtual GPU, and judge them all.",
    ),
]


GpusOption = Annotated[
    int,
    typer.Option(
        "--gpus",
        min=0,
        max=64,
        metavar="N",
        show_default=False,
        help="How many virtual GPUs it sees, it and the processes that it starts.",
    ),
]


def ranks_for(ranks: int, gpus: int) -> int:
    """The ranks. Ends the command where they have too few GPUs."""
    if 0 < gpus < ranks:
        fail(f"--gpus {gpus}: each of {ranks} ranks has a GPU of its own")
    return ranks
