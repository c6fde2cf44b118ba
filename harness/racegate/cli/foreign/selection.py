"""Which scenarios a gate of a target judges: those of a folder, and drawn ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated, TypeVar

import typer

from racegate.cli.options import folder_to_fill, say, write_text
from racegate.jobs.foreign.requests import STRETCH
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario, Scenario
from racegate.scenario.untrusted.text import many
from racegate.targets.vllm.sorts import drawn, file_of

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


def draw(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")],
    count: Annotated[int, typer.Option(min=1, max=STRETCH, help="So many scenarios.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="With another one others are drawn.")] = 0,
) -> None:
    """Write drawn scenarios, in which requests of every sort meet all that happens to requests: for
    a gate beside a base (`gate --against BASE --scenarios DIR`), which needs nobody to say what is
    expected of them.
    """
    folder_to_fill(out)
    for index in range(count):
        name = f"drawn_{seed}_{index:0{len(str(count - 1))}}"
        title = f"requests of every sort: {index} of seed {seed}"
        origin = f"racegate vllm draw --seed {seed}"
        one = drawn(seed * STRETCH + index)
        write_text(out / f"{name}.toml", file_of(one, name, title=title, origin=origin))
    say(
        f"wrote {many(count, 'scenario')}; next: racegate vllm gate --release X --path DIR "
        f"--against X --scenarios {quote(str(out))}"
    )
