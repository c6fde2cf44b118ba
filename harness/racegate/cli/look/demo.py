"""The command demo: a historical race, by the commands that anybody would give."""

from __future__ import annotations

import shutil
from pathlib import Path
from shlex import join
from typing import Annotated, NamedTuple

import typer

from racegate.cli.app import app as racegate_app
from racegate.cli.options import folder_to_fill, say, stdout_console
from racegate.history.exit_code import ExitCode
from racegate.scenario.errors import BrokenHarnessError
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.untrusted.console import line

SCRIPT = "finish_and_condense.toml"
FAULT = "accepted-copy-after-row-move"
WITNESS = f"{FAULT}.witness.json"

app = typer.Typer(add_completion=False)


class _Act(NamedTuple):
    """A command with what it is for, and the exit code that it has to end with."""

    what: str
    command: tuple[str, ...]
    expected: ExitCode


def _acts(folder: Path) -> tuple[_Act, ...]:
    script, witness, page = (str(folder / name) for name in (SCRIPT, WITNESS, "race.html"))
    return (
        _Act(
            "Found. Before vllm#38556 the accepted counts of a step were copied to the host while "
            "their rows were moved. Nothing is delayed and no value is wrong, and the race is seen",
            ("run", script, "--fault", FAULT),
            ExitCode.FINDING,
        ),
        _Act(
            "Shown. One hold keeps the copy back until the row has moved: a request now decodes "
            "with the count of another. A search came to this witness, and it replays anywhere",
            ("replay", witness),
            ExitCode.FINDING,
        ),
        _Act(
            "Explained, and drawn: both operations, the row, and the edge that would order them",
            ("explain", witness, "--html", page),
            ExitCode.CLEAN,
        ),
        _Act(
            "Repaired: with the edge at its place, nothing is unordered, whatever is held",
            ("run", script, "--explore", "ladder"),
            ExitCode.CLEAN,
        ),
    )


@app.command()
def demo(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder to fill.", callback=folder_to_fill),
    ] = Path("racegate-demo"),
) -> None:
    """Find, explain, draw and repair a historical race; needs no GPU, and no file of yours."""
    scripts = shipped_scripts()
    shutil.copyfile(scripts / SCRIPT, out / SCRIPT)
    shutil.copyfile(scripts / "witnesses" / WITNESS, out / WITNESS)
    for number, act in enumerate(_acts(out), start=1):
        _play(number, act)
    say(f"look at {out / 'race.html'}; every command above can be given again")


def _play(number: int, act: _Act) -> None:
    """Runs a command as if it had been typed. Raises BrokenHarnessError if it ends otherwise."""
    console = stdout_console()
    command = join(["racegate", *act.command])
    console.print()
    console.print(line((f"{number}. {act.what}.", "bold")))
    console.print(line(f"    $ {command}"), soft_wrap=True)
    console.print()
    code = racegate_app(list(act.command), prog_name="racegate", standalone_mode=False)
    if (code or 0) != act.expected:
        raise BrokenHarnessError(
            f"the demonstration: `{command}` ended with {code or 0}, not with {act.expected.value}"
        )
