"""The commands adapter check, run and gate: engines in a process of their own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from racegate.adapters.client import Adapter
from racegate.adapters.conformance import (
    CheckOutcome,
    Conformance,
    ConformanceCheck,
    conform,
    demand_conformance,
)
from racegate.adapters.judge import LANDINGS_MAX, AdapterCommand, AdapterJudge, Judgement
from racegate.adapters.process import Limits
from racegate.adapters.wire import parse_plant
from racegate.cli.options import (
    JsonOption,
    ScenariosOption,
    progress_bar,
    stdout_console,
    write_json,
)
from racegate.history.exit_code import ExitCode
from racegate.history.finding import exit_code
from racegate.history.schedule import parse_schedule
from racegate.report.adapter import (
    AdapterGateObject,
    print_adapter_gate,
    print_check,
    print_judgement,
)
from racegate.scenario.files import load, load_all, scenario_paths

app = typer.Typer(no_args_is_help=True, help="Judge an engine of your own, through its adapter.")

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="What starts the adapter.")
]
StartOption = Annotated[
    float, typer.Option("--start-s", min=0.1, help="Seconds until the engine introduces itself.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout-s", min=0.1, help="Seconds that one run may take.")
]
MemoryOption = Annotated[
    int, typer.Option("--memory-mib", min=1, help="MiB that the engine may hold.")
]
AddressOption = Annotated[
    int | None, typer.Option("--address-mib", min=1, help="MiB of address space (RLIMIT_AS).")
]
EngineDeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="One that the engine offers.")
]
LandingsOption = Annotated[
    int, typer.Option("--landings", min=0, help="Schedules to run besides the eager one.")
]

_LIMITS = Limits()


@app.command()
def check(
    command: CommandArgument,
    start_s: StartOption = _LIMITS.start_s,
    timeout_s: TimeoutOption = _LIMITS.timeout_s,
    memory_mib: MemoryOption = _LIMITS.memory_mib,
    address_mib: AddressOption = _LIMITS.address_mib,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit: is what this adapter says to be believed?"""
    limits = Limits(
        start_s=start_s, timeout_s=timeout_s, memory_mib=memory_mib, address_mib=address_mib
    )
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
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file.")],
    command: CommandArgument,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until POINT'", help="A hold.")
    ] = None,
    plant: Annotated[
        str | None,
        typer.Option(metavar="PLANT", help="drop_edge:NAME, wrong_row or stale_value."),
    ] = None,
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    start_s: StartOption = _LIMITS.start_s,
    timeout_s: TimeoutOption = _LIMITS.timeout_s,
    memory_mib: MemoryOption = _LIMITS.memory_mib,
    address_mib: AddressOption = _LIMITS.address_mib,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly and with the landings of what races, or with holds; judge it."""
    limits = Limits(
        start_s=start_s, timeout_s=timeout_s, memory_mib=memory_mib, address_mib=address_mib
    )
    loaded = load(scenario)
    schedule = None if hold is None else parse_schedule(hold)
    planted = None if plant is None else parse_plant(plant)
    with Adapter(command, limits=limits) as adapter:
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
    if json is not None:
        write_json(json, judged)
    if json != "-":
        print_judgement(stdout_console(), judged)
    raise typer.Exit(exit_code([judged.result.verdict]))


@app.command()
def gate(
    command: CommandArgument,
    scenarios: ScenariosOption = Path("scenarios"),
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    start_s: StartOption = _LIMITS.start_s,
    timeout_s: TimeoutOption = _LIMITS.timeout_s,
    memory_mib: MemoryOption = _LIMITS.memory_mib,
    address_mib: AddressOption = _LIMITS.address_mib,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit, and then every scenario that the engine can make happen."""
    limits = Limits(
        start_s=start_s, timeout_s=timeout_s, memory_mib=memory_mib, address_mib=address_mib
    )
    loaded = load_all(scenario_paths(scenarios))
    judged: list[Judgement] = []
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
    found = AdapterGateObject.of(judged)
    if json is not None:
        write_json(json, found)
    if json != "-":
        print_adapter_gate(stdout_console(), found)
    raise typer.Exit(exit_code([found.verdict]))


def _command(scenario: Path, command: list[str]) -> AdapterCommand:
    return AdapterCommand(
        before=f"racegate adapter run {scenario}", after=f"-- {shlex.join(command)}"
    )
