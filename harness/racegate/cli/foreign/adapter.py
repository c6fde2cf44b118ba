"""The commands adapter check, run and gate: engines in a process of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec
import typer

from racegate.cli.ci import JunitOption, SarifOption, write_checked
from racegate.cli.options import (
    JsonOption,
    ScenariosOption,
    StrictOption,
    WitnessesOption,
    benign_of,
    loaded_scripts,
    progress_bar,
    say,
    stdout_console,
    write_json,
)
from racegate.history.exit_code import ExitCode
from racegate.history.finding import exit_code
from racegate.history.outcome import RunResult, gated
from racegate.history.schedule import parse_schedule
from racegate.history.witness import save
from racegate.report.ci.failing import checked_adapter
from racegate.report.targets.adapters import print_adapter_gate, print_check, print_judgement
from racegate.scenario.files import load
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.conformance import (
    CheckOutcome,
    Conformance,
    ConformanceCheck,
    conform,
    demand_conformance,
)
from racegate.targets.adapters.judge import LANDINGS_MAX, AdapterCommand, AdapterJudge
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.wire import PLANTS_TEXT, parse_plant
from racegate.targets.adapters.witness import witness_of

app = typer.Typer(no_args_is_help=True, help="Judge an engine of your own, through its adapter.")

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="What starts the adapter.")
]
EngineDeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="One that the engine offers.")
]
LandingsOption = Annotated[
    int, typer.Option("--landings", min=0, help="Schedules to run besides the eager one.")
]

# Of every command that starts an engine, by the field of Limits.
_LIMIT_OPTIONS = {
    "start_s": typer.Option(
        "--start-s", min=0.1, help="Seconds until the engine introduces itself."
    ),
    "timeout_s": typer.Option("--timeout-s", min=0.1, help="Seconds that one run may take."),
    "memory_mib": typer.Option("--memory-mib", min=1, help="MiB that the engine may hold."),
    "address_mib": typer.Option("--address-mib", min=1, help="MiB of address space (RLIMIT_AS)."),
}


def _with_limits(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each limit in the place of its parameter `limits`."""
    defaults, types = Limits(), get_type_hints(Limits)
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(defaults, name),
            annotation=Annotated[types[name], option],
        )
        for name, option in _LIMIT_OPTIONS.items()
    ]

    def with_limits(**given: object) -> None:
        limits = {name: given.pop(name) for name in _LIMIT_OPTIONS}
        command(**given, limits=msgspec.convert(limits, Limits))

    parameters = [
        option
        for parameter in signature(command, eval_str=True).parameters.values()
        for option in (options if parameter.name == "limits" else [parameter])
    ]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    update_wrapper(with_limits, command)
    with_limits.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_limits.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_limits


@app.command()
@_with_limits
def check(
    command: CommandArgument,
    *,
    limits: Limits,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit: is what this adapter says to be believed?"""
    console = stdout_console()
    checks: list[ConformanceCheck] = []
    with Adapter(command, limits=limits) as adapter:
        hello = adapter.hello
        for found in conform(adapter):
            checks.append(found)
            if json != "-":
                print_check(console, found)
    conformance = Conformance(
        engine=hello.engine, version=hello.version, offers=hello.offers, checks=tuple(checks)
    )
    if json is not None:
        write_json(json, conformance)
    if json != "-":
        failed = sum(found.outcome is CheckOutcome.FAILED for found in checks)
        console.print(f"{len(checks)} checks, {failed} failed")
    raise typer.Exit(ExitCode.CLEAN if conformance.is_passed else ExitCode.BROKEN_HARNESS)


@app.command()
@_with_limits
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file.")],
    command: CommandArgument,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until POINT'", help="A hold.")
    ] = None,
    plant: Annotated[
        str | None,
        typer.Option("--plant", metavar="PLANT", help=f"{PLANTS_TEXT}."),
    ] = None,
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    *,
    limits: Limits,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly and with the landings of what races, or with holds; judge it."""
    loaded = load(scenario)
    schedule = None if hold is None else parse_schedule(hold)
    planted = None if plant is None else parse_plant(plant)
    with Adapter(command, limits=limits) as adapter:
        hello = adapter.hello
        judge = AdapterJudge(
            adapter,
            loaded,
            device=device,
            landings_max=landings,
            command=_command(scenario, command),
        )
        if schedule is None:
            judged = judge.judge(plant=planted)
        else:
            judged = judge.under(schedule, plant=planted)
    found = None if witness is None else witness_of(judged, loaded, hello, command)
    if witness is not None and found is not None:
        file = witness / f"{loaded.name}.witness.json"
        save(found, file)
        say(f"wrote {file}: racegate replay {shlex.quote(str(file))}")
    if json is not None:
        write_json(json, judged)
    if json != "-":
        print_judgement(stdout_console(), judged)
    raise typer.Exit(exit_code([judged.verdict], benign=benign_of(strict)))


@app.command()
@_with_limits
def gate(
    command: CommandArgument,
    scenarios: ScenariosOption = Path("scenarios"),
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    strict: StrictOption = None,
    *,
    limits: Limits,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit, and then every scenario that the engine can make happen."""
    loaded = loaded_scripts(scenarios)
    judged: list[RunResult] = []
    with Adapter(command, limits=limits) as adapter:
        demand_conformance(adapter)
        with progress_bar() as progress:
            task = progress.add_task("scenarios", total=len(loaded))
            for path, scenario in loaded:
                judge = AdapterJudge(
                    adapter,
                    scenario,
                    device=device,
                    landings_max=landings,
                    command=_command(path, command),
                )
                judged.append(judge.judge())
                progress.advance(task)
    found = gated(judged, deciding=judged)
    files = {scenario.name: str(path) for path, scenario in loaded}
    benign = benign_of(strict)
    write_checked(checked_adapter(found, files, benign), junit, sarif)
    if json is not None:
        write_json(json, found)
    if json != "-":
        print_adapter_gate(stdout_console(), found)
    raise typer.Exit(found.exit_code(benign))


def _command(scenario: Path, command: list[str]) -> AdapterCommand:
    return AdapterCommand(
        before=f"racegate adapter run {scenario}", after=f"-- {shlex.join(command)}"
    )
