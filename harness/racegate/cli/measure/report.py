"""The command report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.options import place_to_write, stdout_console, write_text
from racegate.report.gpu import PAGE, load_folder, render_gpu, targets
from racegate.scenario.outside.console import line

app = typer.Typer(add_completion=False)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With the JSON files of a GPU.")],
) -> None:
    """Put what was measured on a GPU beside its limits: writes DIR/README.md from the JSON files
    there.
    """
    place_to_write(folder / PAGE)
    found = load_folder(folder)
    write_text(folder / PAGE, render_gpu(found))
    for target in targets(found):
        style = "green" if target.is_met else "bold yellow"
        stdout_console().print(line((f"{target.shown:>28}", style), f"  {target.name}"))
