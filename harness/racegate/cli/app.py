"""The command line. Exit codes: 0 clean, 1 finding, 2 usage or bad input, 3 the harness itself is
not sound, 4 inconclusive; replay alone: 5 another signature, 6 nothing found.

A command is imported when it is called: `--help` needs none of them.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from shlex import quote
from typing import Annotated, Any, NamedTuple, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

from racegate.cli.help.examples import epilog_of
from racegate.cli.options import UsageError, fail, say
from racegate.history import __version__
from racegate.history.breakage import Caught
from racegate.history.exit_code import UNREAD, ExitCode
from racegate.jobs.pools.collecting import collect_from_here_on
from racegate.jobs.stopping import code_of, listen_for_stops, words_of
from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.untrusted.text import printable, without_secrets


class CommandKind(StrEnum):
    """The groups of commands in the help, in their order."""

    FIRST = "First"
    JUDGE = "Judge"
    FINDING = "Look at a finding"
    SEARCH = "Search for more"
    TOOL = "The tool itself"


class LazyCommand(NamedTuple):
    """A command. module: of this room; app: what it calls the command, or the group of commands"""

    kind: CommandKind
    module: str
    summary: str
    app: str = "app"


COMMANDS = {
    "demo": LazyCommand(
        CommandKind.FIRST, "look.demo", "See a historical race found, explained and repaired."
    ),
    "doctor": LazyCommand(
        CommandKind.FIRST, "look.doctor", "Say what works here, and what to do about the rest."
    ),
    "docs": LazyCommand(CommandKind.FIRST, "look.docs", "Read the documents."),
    "new": LazyCommand(CommandKind.FIRST, "look.new", "Begin a scenario."),
    "torch": LazyCommand(
        CommandKind.JUDGE, "foreign.torch", "Judge a PyTorch program, unmodified, without a GPU."
    ),
    "vllm": LazyCommand(
        CommandKind.JUDGE,
        "foreign.engines",
        "Judge unmodified vLLM releases, without a GPU.",
        app="vllm",
    ),
    "sglang": LazyCommand(
        CommandKind.JUDGE,
        "foreign.engines",
        "Judge unmodified SGLang releases, without a GPU.",
        app="sglang",
    ),
    "adapter": LazyCommand(
        CommandKind.JUDGE, "foreign.adapter", "Judge an engine of your own, through its adapter."
    ),
    "kernels": LazyCommand(
        CommandKind.JUDGE, "foreign.kernels", "Judge the Triton kernels that a test launches."
    ),
    "gate": LazyCommand(
        CommandKind.JUDGE, "gate", "Run every scenario on the virtual device through all oracles."
    ),
    "run": LazyCommand(CommandKind.JUDGE, "run", "Run one scenario and judge it."),
    "replay": LazyCommand(CommandKind.FINDING, "replay", "Run witnesses again."),
    "minimise": LazyCommand(
        CommandKind.FINDING, "foreign.searching", "Leave out of a witness what it does not need."
    ),
    "repair": LazyCommand(
        CommandKind.FINDING,
        "foreign.repair",
        "Repair a program: edges that are written, run and proved, as a diff.",
    ),
    "export": LazyCommand(
        CommandKind.FINDING,
        "foreign.repair",
        "Write a program's finding as a test that needs no racegate.",
        app="export_app",
    ),
    "explain": LazyCommand(
        CommandKind.FINDING, "look.explain", "Explain a witness, or how two operations are ordered."
    ),
    "ops": LazyCommand(
        CommandKind.FINDING,
        "look.ops",
        "List what holds can name, and useful holds.",
    ),
    "fuzz": LazyCommand(CommandKind.SEARCH, "fuzz", "Search drawn scenarios for new findings."),
    "fleet": LazyCommand(
        CommandKind.SEARCH, "look.fleet", "The same search on several targets, side by side."
    ),
    "history": LazyCommand(
        CommandKind.SEARCH, "look.history", "The same on version after version of a package."
    ),
    "bisect": LazyCommand(
        CommandKind.SEARCH,
        "look.history",
        "The release of a package that brought a race into a program, or repaired it.",
        app="bisect_app",
    ),
    "watch": LazyCommand(
        CommandKind.SEARCH,
        "look.watch",
        "Programs on each new version of the packages that they use.",
    ),
    "campaign": LazyCommand(
        CommandKind.SEARCH, "look.campaign", "What campaigns have found, and whether it is fixed."
    ),
    "scenarios": LazyCommand(CommandKind.TOOL, "scenarios", "The scenario scripts."),
    "faults": LazyCommand(CommandKind.TOOL, "faults", "The seeded faults."),
    "ab": LazyCommand(
        CommandKind.TOOL,
        "measure.ab",
        "Compare generations with and without a fault.",
    ),
    "soak": LazyCommand(
        CommandKind.TOOL, "measure.soak", "Run correct scenarios on a GPU with held operations."
    ),
    "bench": LazyCommand(
        CommandKind.TOOL, "measure.bench", "Measure schedules per second, and what holding costs."
    ),
    "report": LazyCommand(
        CommandKind.TOOL, "measure.report", "Put what was measured on a GPU beside its limits."
    ),
}


# What ends a command as it should, or has its exit code from somebody else.
EXPECTED = (
    typer.Exit,
    typer.Abort,
    UsageError,
    BadInputError,
    BrokenHarnessError,
)


class LazyCommands(TyperGroup):
    """Knows the names and summaries of its commands, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, lazy in COMMANDS.items():
            self.add_command(TyperCommand(name, help=lazy.summary, rich_help_panel=lazy.kind.value))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Typer's own, with the command itself in the place of its summary."""
        if lazy := COMMANDS.get(args[0]):
            module = import_module(f"racegate.cli.{lazy.module}")
            command = cast(TyperCommand, typer.main.get_command(getattr(module, lazy.app)))
            refuse_repeats(command)
            add_epilogs(command, args[0])
            self.add_command(command, args[0])
            collect_from_here_on()
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Typer's own, with errors that a terminal can be shown."""
        with printable_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> object:
        """The command, with an exit code for whatever ends it: 1 is a finding and nothing else."""
        command = " ".join(["racegate", *map(quote, map(without_secrets, sys.argv[1:]))])
        try:
            with Caught(ctx.command_path, command=command, through=EXPECTED) as caught:
                try:
                    with printable_usage():
                        result = super().invoke(ctx)
                finally:
                    # A full disk behind standard output is noticed here or never.
                    sys.stdout.flush()
        except BadInputError as error:
            fail(str(error))
        except BrokenHarnessError as error:
            broken(str(error))
        except KeyboardInterrupt as stop:
            say(words_of(stop))
            drop_output()
            raise SystemExit(code_of(stop)) from None
        if caught.breakage is not None:
            if is_reader_gone():
                end_unread()
            broken(caught.breakage.text)
        return result


def refuse_repeats(command: Any) -> None:
    """An option that a command, or one below it, is given twice is an error of usage, unless it is
    a list: of two values, one would be dropped without a word.
    """
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    for one in below:
        refuse_repeats(one)
    parse = command.parse_args

    def parse_args(ctx: typer.Context, args: list[str]) -> list[str]:
        # Typer's own parser changes the list that it is given.
        _, _, order = command.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            if times > 1 and option.param_type_name == "option" and not option.multiple:
                name = max(option.opts, key=len)
                raise typer.BadParameter(f"{name} is given {times} times", ctx=ctx)
        parsed: list[str] = parse(ctx, args)
        return parsed

    command.parse_args = parse_args


def add_epilogs(command: TyperCommand | TyperGroup, name: str) -> None:
    """Below the help of a command, and of those below it, an example and the exit codes."""
    if isinstance(command, TyperGroup):
        for below, one in command.commands.items():
            add_epilogs(cast(TyperCommand, one), f"{name} {below}")
    command.epilog = epilog_of(name)


@contextmanager
def printable_usage() -> Iterator[None]:
    """Inside, an error of usage does not repeat what a terminal would act on."""
    try:
        yield
    except UsageError as error:
        for name, said in vars(error).items():
            if isinstance(said, str):
                setattr(error, name, printable(said))
        raise


def is_reader_gone() -> bool:
    """Whether nobody reads standard output any more, as behind `| head`."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno())
    except OSError:  # Standard output is no file.
        return False
    return any(happened & select.POLLERR for _, happened in poll.poll(0))


def end_unread() -> NoReturn:
    """As any program ends whose reader has gone: silently, and with no verdict."""
    drop_output()
    raise SystemExit(UNREAD)


def broken(reason: str) -> NoReturn:
    """The harness is not sound: the reason on standard error, exit code 3."""
    say(reason)
    drop_output()
    raise SystemExit(ExitCode.BROKEN_HARNESS)


def drop_output() -> None:
    """Drops what standard output does not take, or the end of the process would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find the wait that is missing between the host and a GPU, or between two streams.",
    epilog=epilog_of(""),
)


def print_version(is_asked: bool | None) -> None:  # noqa: FBT001
    """For an eager option: nothing else is done."""
    if is_asked:
        print(f"racegate {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=print_version, is_eager=True, help="Say which it is."),
    ] = None,
    no_core: Annotated[
        bool | None,
        typer.Option(
            "--no-core", help="Nothing in C for our own engine, as RACEGATE_COMPILED=0: slower."
        ),
    ] = None,
) -> None:
    """What stands before a command."""
    if no_core:
        # Workers and children are to do as this process does.
        os.environ["RACEGATE_COMPILED"] = "0"


def main() -> None:
    """Runs the command. Rich and Typer end with 1 where nobody reads: here that is a finding."""
    if sys.stderr is None:  # closed: what is said there is dropped, and not printed elsewhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  to the end of the process
    if sys.stdout is None:
        say("standard output is closed: nobody would read the verdict")
        raise SystemExit(UNREAD)
    listen_for_stops()
    # Text that the encoding of standard output lacks is no reason to end.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            end_unread()
        raise
    except OSError as error:  # of what ends before a command begins, as --version does
        broken(f"cannot write to standard output: {error.strerror or error}")
