"""racegate's own engine, of a revision or on a device: a run for each scenario, all in one process,
behind planted faults that it has to see.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from racegate.check.selfcheck import CANARIES, SelfCheck, canary_scenario
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict, failure_in
from racegate.history.outcome import RunResult
from racegate.history.witness import EngineSubject, Witness, recorded_finding, versions
from racegate.jobs.fleet.process import run_commands
from racegate.jobs.fleet.targets import DeviceTarget, OwnTarget, TargetDevice
from racegate.jobs.foreign.opened import TargetResult
from racegate.jobs.generated import LADDER_BUDGET
from racegate.scenario.spec import OwnScenario
from racegate.scenario.writing import toml_of

# Between them these have something for every oracle.
PLANTED = CANARIES[1:]
LADDER = ("--explore", "ladder", "--budget", str(LADDER_BUDGET))
ON_GPU = ("--device", "cuda")
Command = tuple[str, ...]


class FleetAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """shown: by the name of the scenario, of those that were answered; why: others were not"""

    shown: dict[str, TargetResult] = {}
    why: str = ""
    selfcheck: SelfCheck = SelfCheck()


def judge_by_runs(
    target: OwnTarget,
    scenarios: Sequence[OwnScenario],
    *,
    seed: int,
    variables: Mapping[str, str],
    folder: Path,
    timeout_s: float,
) -> FleetAnswers:
    """seed: of the fleet; variables: of the process; folder: for its files"""
    is_gpu = isinstance(target, DeviceTarget) and target.device is TargetDevice.GPU
    how = ON_GPU if is_gpu else LADDER
    commands = [*_canaries(folder, ON_GPU if is_gpu else ())]
    for scenario in scenarios:
        file = f"{scenario.name}.toml"
        (folder / file).write_text(toml_of(scenario), encoding="utf-8")
        commands.append(("run", file, *how, "--json", f"{scenario.name}.json"))
    ended = run_commands(
        commands,
        folder=folder,
        place=folder,
        variables={**variables, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout_s=timeout_s,
    )
    if any(code not in SEEN for code in ended.codes[: len(PLANTED)]):
        return FleetAnswers(why=f"it cannot run what is planted: {ended.why}")
    if len(ended.codes) < len(PLANTED):
        return FleetAnswers(why=ended.why)
    selfcheck = _found(folder)
    if not selfcheck.is_sound:
        return FleetAnswers(why=selfcheck.problems[0], selfcheck=selfcheck)
    shown: dict[str, TargetResult] = {}
    why = ended.why
    for scenario, code in zip(scenarios, ended.codes[len(PLANTED) :], strict=False):
        run = _read(folder / f"{scenario.name}.json")
        if run is not None and run.breakages:
            why = run.breakages[0].error
        elif run is not None and code in SEEN:
            found = [own_witness_of(target, scenario, seed, run)] if run.findings else []
            shown[scenario.name] = TargetResult(result=run, witnesses=tuple(found))
        elif code == ExitCode.BAD_INPUT:
            refused = _refused(target, scenario.name, ended.why)
            shown[scenario.name] = TargetResult(result=refused)
    return FleetAnswers(shown=shown, why=why, selfcheck=selfcheck)


def _read(file: Path) -> RunResult | None:
    """What a run wrote; None where it wrote nothing, or it is not understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunResult)
    except (OSError, msgspec.MsgspecError):
        return None


def _refused(target: OwnTarget, name: str, why: str) -> RunResult:
    """Of a scenario that this revision does not read."""
    return RunResult(
        scenario=name,
        device=target.title,
        verdict=Verdict.INCONCLUSIVE,
        refused=why,
    )


# A run that came to its end.
SEEN = (ExitCode.CLEAN, ExitCode.FINDING, ExitCode.INCONCLUSIVE)


def _canaries(folder: Path, how: Command) -> Iterator[Command]:
    for number, canary in enumerate(PLANTED):
        file = folder / f"canary-{number}.toml"
        file.write_text(toml_of(canary_scenario(canary.cache_mode)), encoding="utf-8")
        answer = f"canary-{number}.json"
        yield "run", file.name, *how, "--fault", canary.fault, "--json", answer


def _found(folder: Path) -> SelfCheck:
    problems = []
    for number, canary in enumerate(PLANTED):
        run = _read(folder / f"canary-{number}.json")
        lacking = set(canary.shows) - (set() if run is None else {one.kind for one in run.findings})
        if lacking:
            problems.append(f"canary {canary.fault}: planted and not seen: {sorted(lacking)}")
    return SelfCheck(
        canaries=len(PLANTED),
        canaries_found=len(PLANTED) - len(problems),
        problems=tuple(problems),
    )


def own_witness_of(
    target: OwnTarget, scenario: OwnScenario, seed: int, result: RunResult
) -> Witness:
    """Of what a run showed. Its title is the command that shows it, to be run with the sources of a
    revision; the scenario's file is beside it.
    """
    found = failure_in(result.findings)
    assert found is not None
    holds = found.holds or result.schedule
    on = ON_GPU if isinstance(target, DeviceTarget) and target.device is TargetDevice.GPU else ()
    held = [word for hold in holds for word in ("--hold", hold)]
    return Witness(
        title=shlex.join(("racegate", "run", f"{scenario.name}.toml", *on, *held)),
        scenario=scenario,
        holds=holds,
        subject=EngineSubject(fault=None, device=target.title, seed=seed),
        signature=found.signature,
        finding=recorded_finding(result.findings),
        verdict=result.verdict,
        digest="",
        versions=versions(),
    )
