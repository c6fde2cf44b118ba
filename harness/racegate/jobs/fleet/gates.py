"""Engines of others: the gate of their kind over a folder of scenarios, on an engine that is
started once. A gate plants wrong values first; one that does not see them judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from racegate.history.outcome import GatedResults
from racegate.jobs.fleet.process import run_commands
from racegate.jobs.fleet.shown import FleetAnswers, read, shown_of
from racegate.jobs.fleet.targets import AdapterTarget, SglangTarget, VllmTarget

ANSWER = "answer.json"


def judge_by_gate(
    target: AdapterTarget | VllmTarget | SglangTarget, *, folder: Path, timeout_s: float
) -> FleetAnswers:
    """folder: where the scenarios are"""
    asked = ("--scenarios", str(folder), "--json", str(folder / ANSWER))
    if isinstance(target, AdapterTarget):
        command: tuple[str, ...] = ("adapter", "gate", *asked, "--", *target.adapter)
        place = Path(target.folder)
    else:
        group, *words = release_words(target)
        log = ("--log", str(folder / "engine.log"))
        command, place = (group, "gate", *words, *asked, *log), folder
    ended = run_commands([command], folder=folder, place=place, timeout_s=timeout_s)
    gate = read(folder / ANSWER, GatedResults)
    answered = () if gate is None else (one for one in gate.results if not one.is_lost)
    return FleetAnswers(shown={one.scenario: shown_of(one) for one in answered}, why=ended.why)


def release_words(target: VllmTarget | SglangTarget) -> Sequence[str]:
    """A release on the command line: its group of commands, then options of each."""
    if isinstance(target, VllmTarget):
        where = ("--runner", target.runner, "--cache-mode", target.cache_mode)
        return ("vllm", "--release", target.vllm, *where)
    return ("sglang", "--release", target.sglang, "--model", target.model)
