"""The command new scenario."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from racegate.cli.options import fail, folder_to_fill, say, write_text
from racegate.report.published.schema import schema_text
from racegate.report.templating import render
from racegate.scenario.untrusted.text import quoted

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SCHEMA = "scenario.schema.json"

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Begin something of your own.")


@app.callback()
def new_group() -> None:
    """Begin something of your own."""


@app.command()
def scenario(
    name: Annotated[str, typer.Argument(help="Of the scenario, as in rows-change-hands.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path(
        "scenarios"
    ),
) -> None:
    """Write a script with comments, and beside it the schema that editors check it by."""
    if not NAME.fullmatch(name) or len(name) > 100:
        fail(f"{quoted(name)} is no name: small letters and digits, with - between words")
    path = out / f"{name.replace('-', '_')}.toml"
    if path.exists():
        fail(f"{path} is there already")
    folder_to_fill(out)
    write_text(path, render("scenario.toml.j2", name=name, file=quote(str(path))))
    write_text(out / SCHEMA, schema_text())
    say(f"wrote {path}, and {out / SCHEMA} for editors; next: racegate run {quote(str(path))}")
