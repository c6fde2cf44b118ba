"""The command line. Exit codes: 0 clean, 1 finding, 2 usage or bad input, 3 the harness itself is
not sound, 4 inconclusive; replay alone: 5 another signature, 6 nothing found.

A command is imported when it is called: `--help` needs none of them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from shlex import quote
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import racegate
from racegate.cli.options import fail
from racegate.history.breakage import Caught
from racegate.history.exit_code import INTERRUPTED, ExitCode
from racegate.scenario.errors import BadInputError, BrokenHarnessError


class LazyCommand(NamedTuple):
    """A command. module: of this room, with the command or the group of commands as `app`"""

    module: str
    summary: str


COMMANDS = {
    "gate": LazyCommand("gate", "Run every scenario on the virtual device through all oracles."),
    "run": LazyCommand("run", "Run one scenario and judge it."),
    "replay": LazyCommand("replay", "Run witnesses again."),
    "explain": LazyCommand("explain", "Explain a witness, or how two operations are ordered."),
    "fuzz": LazyCommand("fuzz", "Search generated scenarios for new findings."),
    "faults": LazyCommand("faults", "The seeded faults."),
    "scenarios": LazyCommand("scenarios", "The scenario scripts."),
    "adapter": LazyCommand("foreign.adapter", "Judge an engine of your own, through its adapter."),
    "torch": LazyCommand("foreign.torch", "Judge a PyTorch program, unmodified, without a GPU."),
    "vllm": LazyCommand("foreign.vllm", "Judge unmodified vLLM releases, without a GPU."),
    "ab": LazyCommand("ab", "Compare generations with and without a fault under natural timing."),
    "soak": LazyCommand("soak", "Run correct scenarios on a GPU with held operations."),
    "bench": LazyCommand("bench", "Measure schedules per second, and what holding costs."),
    "report": LazyCommand("report", "Put what was measured on a GPU beside its limits."),
}


# What ends a command as it should, or has its exit code from somebody else.
EXPECTED = (
    typer.Exit,
    typer.Abort,
    *typer.BadParameter.__bases__,  # every error of usage; Typer exports no name for it
    BadInputError,
    BrokenHarnessError,
)


class LazyCommands(TyperGroup):
    """Knows the names and summaries of its commands, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, lazy in COMMANDS.items():
            self.add_command(TyperCommand(name, help=lazy.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Typer's own, with the command itself in the place of its summary."""
        if lazy := COMMANDS.get(args[0]):
            module = import_module(f"racegate.cli.{lazy.module}")
            self.add_command(typer.main.get_command(module.app), args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """The command, with an exit code for whatever ends it: 1 is a finding and nothing else."""
        command = " ".join(["racegate", *map(quote, sys.argv[1:])])
        try:
            with Caught(ctx.command_path, command=command, through=EXPECTED) as caught:
                try:
                    result = super().invoke(ctx)
                finally:
                    # A full disk behind standard output is noticed here or never.
                    sys.stdout.flush()
        except BadInputError as error:
            fail(str(error))
        except BrokenHarnessError as error:
            broken(str(error))
        except KeyboardInterrupt:
            print("racegate: interrupted", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        if caught.breakage is not None:
            broken(caught.breakage.text)
        return result


def broken(message: str) -> NoReturn:
    """The harness is not sound: the reason on standard error, exit code 3. What standard output did
    not take is dropped, or the end of the process would try again.
    """
    print(f"racegate: {message}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(ExitCode.BROKEN_HARNESS)


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproduce races of asynchronous speculative decoding, or prove their absence.",
)


def print_version(is_asked: bool | None) -> None:  # noqa: FBT001
    """For an eager option: nothing else is done."""
    if is_asked:
        print(f"racegate {racegate.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=print_version, is_eager=True, help="Say which it is."),
    ] = None,
) -> None:
    """What stands before a command."""


def main() -> None:
    """Entry point."""
    app()
