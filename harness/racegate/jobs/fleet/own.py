"""racegate's own engine, of a revision or on a device: a run for each scenario, all in one process,
behind planted faults that it has to see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from racegate.check.selfcheck import CANARIES, SelfCheck, canary_scenario
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import RunResult
from racegate.jobs.fleet.process import run_commands
from racegate.jobs.fleet.shown import REFUSED, FleetAnswers, Shown, read, shown_of
from racegate.jobs.fleet.targets import DeviceTarget, RevisionTarget, TargetDevice
from racegate.jobs.generated import LADDER_BUDGET
from racegate.scenario.writing import toml_of

# Between them the two have something for every oracle.
PLANTED = CANARIES[1:]
LADDER = ("--explore", "ladder", "--budget", str(LADDER_BUDGET))
ON_GPU = ("--device", "cuda")
Command = tuple[str, ...]


def judge_by_runs(
    target: RevisionTarget | DeviceTarget,
    names: Sequence[str],
    *,
    variables: Mapping[str, str],
    folder: Path,
    timeout_s: float,
) -> FleetAnswers:
    """names: of the scenarios in `folder`; variables: of the process"""
    is_gpu = isinstance(target, DeviceTarget) and target.device is TargetDevice.GPU
    how = ON_GPU if is_gpu else LADDER
    commands = [*_canaries(folder, ON_GPU if is_gpu else ())]
    for name in names:
        commands.append(("run", f"{name}.toml", *how, "--json", f"{name}.json"))
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
    shown: dict[str, Shown] = {}
    why = ended.why
    for name, code in zip(names, ended.codes[len(PLANTED) :], strict=False):
        run = read(folder / f"{name}.json", RunResult)
        if run is not None and run.breakages:
            why = run.breakages[0].error
        elif run is not None and code in SEEN:
            shown[name] = shown_of(run)
        elif code == ExitCode.BAD_INPUT:
            shown[name] = REFUSED
    return FleetAnswers(shown=shown, why=why, selfcheck=selfcheck)


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
        run = read(folder / f"canary-{number}.json", RunResult)
        lacking = set(canary.shows) - (set() if run is None else {one.kind for one in run.findings})
        if lacking:
            problems.append(f"canary {canary.fault}: planted and not seen: {sorted(lacking)}")
    return SelfCheck(
        canaries=len(PLANTED),
        canaries_found=len(PLANTED) - len(problems),
        problems=tuple(problems),
    )
