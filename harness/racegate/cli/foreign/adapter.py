"""The commands adapter check, run and gate: engines in a process of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.ci import (
    CiOptions,
    VerboseOption,
    detail_of,
    ratchet_of,
    with_ci,
    write_checked,
)
from racegate.cli.foreign.pictures import cause_page, write_causes
from racegate.cli.foreign.searching import minimised_file, search_target
from racegate.cli.foreign.selection import ExceptOption, without
from racegate.cli.help.named import ScenarioArgument
from racegate.cli.options import (
    HoldOption,
    JsonOption,
    ScriptsOption,
    StrictOption,
    WitnessesOption,
    benign_of,
    folder_of_scripts,
    loaded_scripts,
    named,
    say_written,
    stdout_console,
    tell,
)
from racegate.cli.pictures import OutOption
from racegate.cli.replay import replay
from racegate.cli.sets import CampaignOptions, campaign_options, with_set
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Finding, exit_code
from racegate.history.gates.results import gated
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.history.witness import save
from racegate.jobs.foreign.adapter_bases import look_beside
from racegate.jobs.foreign.draws import ScenarioDraw
from racegate.jobs.foreign.opened import TargetOptions
from racegate.report.ci.failing import checked_results
from racegate.report.targets.adapters import print_check
from racegate.report.targets.results import print_judgement, print_target_gate
from racegate.scenario.files import load, script_file
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.text import many
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.conformance import (
    CheckOutcome,
    Conformance,
    ConformanceCheck,
    conform,
    demand_conformance,
    racing_in,
)
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import LANDINGS_MAX, AdapterCommand, AdapterJudge, AdapterLook
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.target import NOTHING
from racegate.targets.adapters.wire import PLANTS_TEXT, parse_plant
from racegate.targets.adapters.witness import SHOWN, AdapterSubject, witness_of

app = typer.Typer(no_args_is_help=True, help="Judge an engine of your own, through its adapter.")

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="What starts the adapter.")
]
EngineDeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="One that the engine offers.")
]
AgainstOption = Annotated[
    str,
    typer.Option(
        metavar="'COMMAND...'",
        show_default=False,
        help="Compare with the engine that this starts: only what differs is a finding.",
    ),
]
LandingsOption = Annotated[
    int, typer.Option("--landings", min=0, help="Schedules to run besides the eager one.")
]


def limits_of(
    start_s: Annotated[
        float,
        typer.Option("--start-s", min=0.1, help="Seconds until the engine introduces itself."),
    ] = Limits().start_s,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="Seconds that one run may take.")
    ] = Limits().timeout_s,
    memory_mib: Annotated[
        int, typer.Option("--memory-mib", min=1, help="MiB that the engine may hold.")
    ] = Limits().memory_mib,
    address_mib: Annotated[
        int | None,
        typer.Option("--address-mib", min=1, help="MiB of address space (RLIMIT_AS)."),
    ] = Limits().address_mib,
) -> Limits:
    """The limits of every command that starts an engine."""
    return Limits(
        start_s=start_s, timeout_s=timeout_s, memory_mib=memory_mib, address_mib=address_mib
    )


with_limits = with_set("limits", limits_of)


@app.command()
@with_limits
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
    failed = sum(found.outcome is CheckOutcome.FAILED for found in checks)
    tell(json, conformance, lambda: console.print(f"{many(len(checks), 'check')}, {failed} failed"))
    raise typer.Exit(ExitCode.CLEAN if conformance.is_passed else ExitCode.BROKEN_HARNESS)


@app.command()
@with_limits
def run(
    scenario: ScenarioArgument,
    command: CommandArgument,
    hold: HoldOption = None,
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
    loaded = load(script_file(scenario))
    schedule = None if hold is None else parse_schedule(hold)
    planted = None if plant is None else parse_plant(plant)
    with Adapter(command, limits=limits) as adapter:
        hello = adapter.hello
        judge = AdapterJudge(
            adapter,
            loaded,
            device=device,
            landings_max=landings,
            command=AdapterCommand(scenario=str(scenario), command=tuple(command)),
        )
        if schedule is None:
            judged = judge.judge(plant=planted)
        else:
            judged = judge.under(schedule, plant=planted)
    if witness is not None and judged.verdict in SHOWN:
        found = witness_of(judged, loaded, hello, command)
        file = witness / f"{loaded.name}.witness.json"
        if found is not None:
            save(found, file)
            say_written([file])
    tell(json, judged, lambda: print_judgement(stdout_console(), judged))
    raise typer.Exit(exit_code([judged.verdict], benign=benign_of(strict)))


@app.command()
@with_limits
@with_ci
def gate(
    command: CommandArgument,
    scenarios: ScriptsOption = None,
    left_out: ExceptOption = None,
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    against: AgainstOption = "",
    strict: StrictOption = None,
    out: OutOption = None,
    *,
    limits: Limits,
    ci: CiOptions,
    verbose: VerboseOption = None,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit, and then every scenario of a folder.

    A scenario that the engine cannot run leaves the gate INCONCLUSIVE (exit code 4). What races in
    the kit already is a finding if a scenario shows it. Beside a base what both have in common is
    no finding, and what neither can run is left out.
    """
    loaded = without(loaded_scripts(folder_of_scripts(scenarios)), left_out)
    looked: list[AdapterLook] = []
    how = partial(_judge_of, device=device, landings=landings)
    with ExitStack() as stack:
        engine = _started(stack, command, limits)
        hello, racing = engine[0].hello, racing_in(engine[0])
        base = None if not against else _conforming(stack, shlex.split(against), limits)
        with named("scenarios", total=len(loaded)) as on_scenario:
            for script in loaded:
                looked.append(_kept(_look_beside(script, how, engine, base)))
                on_scenario(script[1].name)
    judged = [one.result for one in looked]
    files = {scenario.name: str(path) for path, scenario in loaded}
    benign = benign_of(strict)
    if racing and gated(judged, benign=benign).exit_code != ExitCode.FINDING:
        raise AdapterError(racing)
    ratchet = ratchet_of(judged, ci, benign)
    found = gated(judged, ratchet, benign)
    code = found.exit_code
    scripts = {scenario.name: scenario for _, scenario in loaded}
    written = write_causes(
        out,
        found.standing,
        lambda run, _: witness_of(run, scripts[run.scenario], hello, command),
        benign=benign,
        page_of=partial(_page, looked, scripts),
    )
    show = partial(print_target_gate, benign=benign, detail=detail_of(verbose), written=written)
    tell(json, found, lambda: show(stdout_console(), found))
    checked = checked_results(judged, files, code=code, benign=benign, ratchet=ratchet)
    write_checked(checked, found.word, ci, json)
    raise typer.Exit(code)


StartedAdapter = tuple[Adapter, tuple[str, ...]]  # with the command that started it


def _started(stack: ExitStack, command: Sequence[str], limits: Limits) -> StartedAdapter:
    return stack.enter_context(Adapter(command, limits=limits)), tuple(command)


def _conforming(stack: ExitStack, command: Sequence[str], limits: Limits) -> StartedAdapter:
    """An engine that is to be believed. Raises AdapterError."""
    started = _started(stack, command, limits)
    demand_conformance(started[0])
    return started


def _judge_of(
    started: StartedAdapter,
    script: tuple[Path, OwnScenario],
    *,
    device: str | None,
    landings: int,
) -> AdapterJudge:
    (adapter, command), (path, scenario) = started, script
    again = AdapterCommand(scenario=str(path), command=command)
    return AdapterJudge(adapter, scenario, device=device, landings_max=landings, command=again)


def _look_beside(
    script: tuple[Path, OwnScenario],
    how: Callable[[StartedAdapter, tuple[Path, OwnScenario]], AdapterJudge],
    engine: StartedAdapter,
    base: StartedAdapter | None,
) -> AdapterLook:
    """What came of a scenario, beside the base if there is one."""
    if base is None:
        return how(engine, script).look()
    return look_beside(partial(how, base, script), partial(how, engine, script))


def _kept(look: AdapterLook) -> AdapterLook:
    """Without its runs where nothing was found: a trace is large."""
    return look if look.result.findings else look._replace(base=NOTHING, shown=NOTHING)


def _page(
    looked: Sequence[AdapterLook],
    scripts: Mapping[str, OwnScenario],
    findings: Sequence[Finding],
    result: RunResult,
) -> str:
    """The page of a scenario's finding, with the run that shows it."""
    from racegate.report.finding.material import pictured_look
    from racegate.report.finding.page import finding_page

    look = next(one for one in looked if one.result.scenario == result.scenario)
    pictured = pictured_look(look, title=scripts[result.scenario].title)
    return cause_page(findings, result) if pictured is None else finding_page(pictured)


@app.command()
@with_limits
@with_set("options", campaign_options)
def search(
    command: CommandArgument,
    options: CampaignOptions,
    draw: Annotated[
        ScenarioDraw, typer.Option(help="requests: requests and aborts alone.")
    ] = ScenarioDraw.ENGINE,
    device: EngineDeviceOption = None,
    landings: LandingsOption = LANDINGS_MAX,
    strict: StrictOption = None,
    *,
    limits: Limits,
    json: JsonOption = None,
) -> None:
    """Run the conformance kit, then draw scenarios from a seed and judge each with its landings;
    keep a witness of each kind of finding, in the smallest scenario that shows it.
    """
    subject = AdapterSubject(command=tuple(command), device=device or "", folder=str(Path.cwd()))
    how = TargetOptions(runs_max=landings, limits=limits)
    search_target(subject, how, options, benign=benign_of(strict), json=json, draw=draw)


app.command("minimise")(minimised_file)
app.command()(replay)
