"""`python -m racegate.interpose SCRIPT [ARGS]`: an unmodified program, judged."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import msgspec
import typer

from racegate.interpose.errors import BadInput, ExitCode
from racegate.interpose.judge import Verdicts, judge, replay
from racegate.interpose.launch import checked_program
from racegate.interpose.outcome import Ending
from racegate.interpose.report import render

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def exit_code_of(verdicts: Verdicts) -> int:
    """0 no conflict, 1 a finding, 2 bad input, 3 not modelled; a failed script keeps its own."""
    outcome = verdicts.outcome
    if outcome.ending is Ending.NOT_MODELLED:
        return ExitCode.NOT_MODELLED
    if outcome.ending is not Ending.FINISHED:
        return outcome.exit_code if outcome.exit_code > 0 else ExitCode.BAD_INPUT
    return ExitCode.FINDING if verdicts.has_finding else ExitCode.CLEAN


@app.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    help="Run an unmodified PyTorch program on the virtual CUDA device and judge its order.",
)
def run(
    *,
    program: Annotated[list[str], typer.Argument(help="SCRIPT [ARGS], or -m MODULE [ARGS]")],
    explore: Annotated[
        bool, typer.Option("--explore", help="Search for a harmful landing.")
    ] = False,
    runs_max: Annotated[int, typer.Option("--runs", help="Runs that the search may make.")] = 64,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", help="Replay: `OPERATION until ACCESS`.")
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds; 0 for none.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
) -> None:
    try:
        checked = checked_program(tuple(program), timeout_s=timeout_s)
        if hold:
            verdicts = replay(checked, tuple(hold))
        else:
            verdicts = judge(checked, explores=explore, runs_max=runs_max)
    except BadInput as error:
        print(f"racegate: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT) from None
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(verdicts)).decode())
    else:
        print(render(verdicts, shlex.join(program)), file=sys.stderr)
    raise typer.Exit(exit_code_of(verdicts))


if __name__ == "__main__":
    app()
