"""Which scenarios of a folder a gate of a target judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from racegate.cli.options import say
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario, Scenario

SomeScenario = TypeVar("SomeScenario", Scenario, OwnScenario)

ExceptOption = Annotated[
    list[str] | None,
    typer.Option("--except", metavar="NAME", help="Leave a scenario out, by its name."),
]


def without(
    loaded: list[tuple[Path, SomeScenario]], names: list[str] | None
) -> list[tuple[Path, SomeScenario]]:
    """The scripts but those that somebody leaves out by name, which is said. Raises BadInputError
    if there is none of such a name.
    """
    left_out = set(names or ())
    if unknown := sorted(left_out - {scenario.name for _, scenario in loaded}):
        raise BadInputError(f"--except {unknown[0]}: the folder has no scenario of that name")
    for name in sorted(left_out):
        say(f"not judged: {name}, left out by --except")
    return [(path, scenario) for path, scenario in loaded if scenario.name not in left_out]


def fitting(
    loaded: list[tuple[Path, SomeScenario]], cannot_run: Callable[[SomeScenario], str]
) -> list[tuple[Path, SomeScenario]]:
    """Of racegate's own scripts those that the settings of the engine allow; the others are named
    with the reason. cannot_run: says why not, empty if it can
    """
    reasons = {scenario.name: cannot_run(scenario) for _, scenario in loaded}
    for name, reason in reasons.items():
        if reason:
            say(f"not judged: {name}: {reason}")
    return [(path, scenario) for path, scenario in loaded if not reasons[scenario.name]]
