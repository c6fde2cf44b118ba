"""The command doctor."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from re import match, search

import typer
from rich.table import Table

from racegate.check.repro.replay import replay
from racegate.check.repro.search import BUDGET
from racegate.check.selfcheck import plant_canaries
from racegate.cli.options import JsonOption, stdout_console, tell
from racegate.device.cuda.driver import NoCudaError
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.torch import gpu_environment, open_cuda
from racegate.device.virtual.compiled import (
    COMPILED_VARIABLE,
    CorePart,
    core_origin,
    why_python,
)
from racegate.history import __version__
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import load_witness
from racegate.jobs.gate import GateJudge
from racegate.report.objects import DoctorObject
from racegate.scenario.files import load_all, scenario_paths
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.untrusted.console import line
from racegate.targets.program.doctor import Checkup, Health, check_programs

# One hold that has to be realised.
HELD = "accepted-copy-after-row-move.witness.json"
# What not everybody installs, and what it is for.
EXTRAS = {
    "campaign": "campaigns of several machines",
    "test": "mutants of the source",
}
STYLES = {Health.OK: "green", Health.ABSENT: "yellow", Health.WRONG: "bold red"}

app = typer.Typer(add_completion=False)


@app.command()
def doctor(json: JsonOption = None) -> None:
    """Say what works here, and what to do about what does not: versions, scripts, canaries, the
    virtual CUDA device, GPUs. 3 if something cannot be believed.
    """
    found = DoctorObject(schema=SCHEMA, checkups=tuple(_checkups()))
    tell(json, found, lambda: _print(found.checkups))
    is_wrong = any(one.health is Health.WRONG for one in found.checkups)
    raise typer.Exit(ExitCode.BROKEN_HARNESS if is_wrong else ExitCode.CLEAN)


def _checkups() -> Iterator[Checkup]:
    yield _versions()
    yield _scripts()
    yield _canaries()
    yield _core()
    yield check_programs()
    for extra, subject in EXTRAS.items():
        yield _extra(extra, subject)
    yield check_gpu()


def _core() -> Checkup:
    """Which parts of our own engine are in C. In Python they do the same, more slowly."""
    reasons = why_python()
    in_c = ", ".join(part for part in CorePart if part not in reasons)
    said = [f"{in_c} in C, {core_origin()}"] if in_c else []
    said += [f"{part} in Python, which is slower: {why}" for part, why in reasons.items()]
    advice = f"a C compiler or a wheel for this system, no {COMPILED_VARIABLE}=0, Python as it came"
    return Checkup(
        subject="compiled core",
        health=Health.ABSENT if reasons else Health.OK,
        said="; ".join(said),
        advice=advice if reasons else "",
    )


def _versions() -> Checkup:
    installed = {name: _version(name) for name in _needed()}
    missing = [name for name, number in installed.items() if not number]
    about = f"racegate {__version__}, Python {platform.python_version()}"
    said = ", ".join([about, *(f"{name} {number}" for name, number in installed.items() if number)])
    return Checkup(
        subject="versions",
        health=Health.ABSENT if missing else Health.OK,
        said=said,
        advice=f"pip install {' '.join(missing)}" if missing else "",
    )


def _extra(extra: str, subject: str) -> Checkup:
    """Whether what an extra brings is there."""
    missing = [name for name in _needed(extra) if not _version(name)]
    return Checkup(
        subject=subject,
        health=Health.ABSENT if missing else Health.OK,
        said=f"{', '.join(missing)} missing" if missing else "they can be run",
        advice=f"pip install 'racegate[{extra}]'" if missing else "",
    )


def _needed(extra: str = "") -> list[str]:
    """What racegate requires, or one of its extras. Nothing is known of what is not installed."""
    try:
        texts = requires("racegate") or []
    except PackageNotFoundError:
        return []
    found = [match(r"[\w.-]+", text) for text in texts if _extra_of(text) == extra]
    return [name[0] for name in found if name is not None and name[0] != "racegate"]


def _extra_of(requirement: str) -> str:
    found = search(r"extra == ['\"]([\w-]+)", requirement)
    return found[1] if found else ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _scripts() -> Checkup:
    """Raises ScenarioError if there are none."""
    folder = shipped_scripts()
    scripts = load_all(scenario_paths(folder))
    witnesses = list((folder / "witnesses").glob("*.witness.json"))
    used = "the folder scenarios" if Path("scenarios").is_dir() else "these"
    count = f"{len(scripts)} scripts and {len(witnesses)} witnesses"
    said = f"{count} in {folder}; a gate here runs {used}"
    return Checkup(subject="scripts", health=Health.OK, said=said)


def _canaries() -> Checkup:
    check = plant_canaries(GateJudge(budget=BUDGET))
    return Checkup(
        subject="canaries",
        health=Health.OK if check.is_sound else Health.WRONG,
        said=f"{check.canaries_found} of {check.canaries} planted faults found",
        advice="" if check.is_sound else f"install racegate anew: {'; '.join(check.problems)}",
    )


def check_gpu() -> Checkup:
    """Whether holds are kept on a GPU: a witness is replayed there."""
    subject = "GPU"
    try:
        site = CudaSite(open_cuda())
    except NoCudaError as error:
        said = "none that can be used; only --device cuda and soak need one"
        return Checkup(subject=subject, health=Health.ABSENT, said=said, advice=str(error))
    witness = load_witness(shipped_scripts() / "witnesses" / HELD)
    found = replay(witness, times=1, command="racegate doctor", cuda=site)
    is_held = found.outcome is ReplayOutcome.REPRODUCED
    facts = gpu_environment()
    return Checkup(
        subject=subject,
        health=Health.OK if is_held else Health.WRONG,
        said=f"{facts['gpu']}, driver {facts['driver']}, CUDA {facts['cuda']}: {found.outcome}",
        advice="" if is_held else f"latches do not hold here: racegate replay {HELD} --device cuda",
    )


def _print(checkups: tuple[Checkup, ...]) -> None:
    table = Table.grid(padding=(0, 2))
    for one in checkups:
        table.add_row(line((one.health, STYLES[one.health])), line((one.subject, "bold")), one.said)
        if one.advice:
            table.add_row("", "", line(("to do: ", "bold"), one.advice))
    stdout_console().print(table)
