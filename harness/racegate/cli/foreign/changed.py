"""`--changed`: of a gate's scenarios those that run what differs from the base."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.options import say
from racegate.history.exit_code import ExitCode
from racegate.jobs.foreign.changes import (
    ChangedPlace,
    ChangedRuns,
    KnownLines,
    changed_places,
    changed_runs,
)
from racegate.jobs.foreign.releases import ReleaseCell, ReopenedEngine
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Scenario
from racegate.scenario.untrusted.text import many

ChangedOption = Annotated[
    bool | None,
    typer.Option(
        "--changed",
        help="Judge only the scenarios that run what differs from the base; what no scenario runs "
        "is told.",
    ),
]
Loaded = list[tuple[Path, Scenario]]
_SHOWN_MAX = 8


def changed_only(loaded: Loaded, cell: ReleaseCell, base: ReopenedEngine | None) -> Loaded:
    """The scripts that run something of the change. base: its engine, None without one

    Raises BadInputError without a base; ends with 0 if nothing differs, and with 4 if no scenario
    runs what does.
    """
    if base is None:
        raise BadInputError("--changed needs a base to tell what has changed: give --against too")
    lines = KnownLines(base.cell, base.opened)
    places = changed_places(base.cell, cell)
    if not places:
        say(f"nothing to judge: no Python of {lines.cell.title} is changed")
        raise typer.Exit(ExitCode.CLEAN)
    chosen = changed_runs(places, lines.of([scenario for _, scenario in loaded]))
    _tell(chosen, [scenario.name for _, scenario in loaded])
    if not chosen.names:
        raise typer.Exit(ExitCode.INCONCLUSIVE)
    return [(path, scenario) for path, scenario in loaded if scenario.name in chosen.names]


def _tell(chosen: ChangedRuns, names: Sequence[str]) -> None:
    left_out = [name for name in names if name not in chosen.names]
    runs = f"{many(len(chosen.names), 'scenario')} of {len(names)} run it"
    say(f"changed: {many(len(chosen.places), 'statement')} of the base; {runs}")
    if chosen.everywhere:
        say("all scenarios are judged, because an import or the engine's start may run")
        _list(chosen.everywhere)
    if left_out:
        say(f"not judged, because they run nothing of it: {', '.join(left_out)}")
    if chosen.unrun:
        say("no scenario runs, so that nothing is known of")
        _list(chosen.unrun)


def _list(places: Sequence[ChangedPlace]) -> None:
    for one in places[:_SHOWN_MAX]:
        say(f"  {one.file}:{one.lines[0]}{f' in {one.scope}' if one.scope else ''}")
    if len(places) > _SHOWN_MAX:
        say(f"  and {len(places) - _SHOWN_MAX} more")
