"""Which release of a package brought a race into a program that uses it, or took it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.interpose.errors import BadInput
from racegate.jobs.triage.bisect import Shows, bisected
from racegate.jobs.versions.cells import CellReport
from racegate.jobs.versions.programs import RACY, SILENT
from racegate.jobs.versions.running import History, kept, run_history
from racegate.targets.common.setup.progress import Say


class AskedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """What one release said. release: its version; shows: a race or none; said: the verdict on the
    program, or why it could not be judged
    """

    release: str
    shows: Shows
    said: str


class ReleaseRange(msgspec.Struct, frozen=True, kw_only=True):
    """Between which two releases a program changes.

    package: its name; program: the script with its arguments
    good, bad: the releases beside each other, of those that can be judged, without and with a race
    between: releases between these two, which could not be judged
    asked: in their order; releases: from one end to the other, how many
    is_brought: the race came with the later release, and was not taken out by it
    """

    schema: str
    package: str
    program: str
    good: str
    bad: str
    between: tuple[str, ...]
    asked: tuple[AskedRelease, ...]
    releases: int
    is_brought: bool

    @property
    def exit_code(self) -> ExitCode:
        """1 the release that brought or repaired it is known, 4 it is one of several."""
        return ExitCode.INCONCLUSIVE if self.between else ExitCode.FINDING


def bisect_releases(
    history: History,
    versions: Sequence[str],
    *,
    package: str,
    is_brought: bool,
    folder: Path,
    say: Say,
) -> ReleaseRange:
    """Judges releases until two are known that lie beside each other and differ. What is kept in
    the folder is not run again.

    Args:
        history: the program on versions of the package.
        versions: from the good end to the bad one.
        package: what pip calls it.
        is_brought: the bad end is the later one.
        folder: of the cells.
        say: is told what is done.

    Raises:
        BadInput: an end is not what it is said to be, or cannot be judged.
    """
    asked: list[AskedRelease] = []

    def ask(place: int) -> Shows:
        asked.append(judged_release(history, versions[place], folder, say))
        return asked[-1].shows

    _check_ends(versions, ask, asked)
    good, bad = bisected(len(versions) - 1, ask)
    (name,) = history.names
    return ReleaseRange(
        schema=SCHEMA,
        package=package,
        program=name,
        good=versions[good],
        bad=versions[bad],
        between=tuple(versions[good + 1 : bad]),
        asked=tuple(asked),
        releases=len(versions),
        is_brought=is_brought,
    )


def _check_ends(
    versions: Sequence[str], ask: Callable[[int], Shows], asked: Sequence[AskedRelease]
) -> None:
    for place, wanted in ((0, Shows.GOOD), (len(versions) - 1, Shows.BAD)):
        if ask(place) is not wanted:
            found = asked[-1]
            raise BadInput(f"{found.release} is not {wanted}, but {found.shows}: {found.said}")


def judged_release(history: History, version: str, folder: Path, say: Say) -> AskedRelease:
    """Judges one release, or takes what is kept of it. Raises BadInput if a file is no cell."""
    run_history(history, [version], folder, say)
    (empty,) = history.cells(version)
    found = asked_release(kept(empty, folder), history.names)
    say(f"{version}: {found.shows} ({found.said})")
    return found


def asked_release(cell: CellReport, names: Sequence[str]) -> AskedRelease:
    """What a judged cell says of the program: a race, none, or nothing."""
    reports = [cell.scenarios[name] for name in names if name in cell.scenarios]
    if not reports:
        return AskedRelease(release=cell.release, shows=Shows.SKIPPED, said=cell.cannot)
    (one,) = reports
    shows = Shows.SKIPPED
    if one.verdict == SILENT:
        shows = Shows.GOOD
    elif one.verdict in RACY:
        shows = Shows.BAD
    said = " ".join(filter(None, (one.verdict, one.message)))
    return AskedRelease(release=cell.release, shows=shows, said=said)
