"""`python -m racegate.interpose SCRIPT [ARGS]`: an unmodified program, judged."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from racegate.interpose.errors import BadInput, ExitCode
from racegate.interpose.launch import prepare, run_once
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.interpose.report import render

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def exit_code_of(outcome: Outcome) -> int:
    """0 no conflict, 1 a finding, 2 bad input, 3 not modelled; a failed script keeps its own."""
    if outcome.ending is Ending.NOT_MODELLED:
        return ExitCode.NOT_MODELLED
    if outcome.ending is not Ending.FINISHED:
        return outcome.exit_code if outcome.exit_code > 0 else ExitCode.BAD_INPUT
    return ExitCode.FINDING if outcome.findings else ExitCode.CLEAN


@app.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    help="Run an unmodified PyTorch program on the virtual CUDA device and judge its order.",
)
def run(
    program: Annotated[list[str], typer.Argument(help="SCRIPT [ARGS], or -m MODULE [ARGS]")],
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds; 0 for none.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
) -> None:
    try:
        outcome = run_once(prepare(tuple(program), timeout_s=timeout_s), Plan())
    except BadInput as error:
        print(f"racegate: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT) from None
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(outcome)).decode())
    else:
        print(render(outcome), file=sys.stderr)
    raise typer.Exit(exit_code_of(outcome))


if __name__ == "__main__":
    app()
