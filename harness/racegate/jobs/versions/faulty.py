"""The releases of a package in which a program races, found from one of them: both ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.interpose.errors import BadInput
from racegate.jobs.triage.bisect import Shows, bisected
from racegate.jobs.versions.bisecting import AskedRelease, judged_release
from racegate.jobs.versions.running import History
from racegate.targets.common.setup.progress import Say

STRIDES_PAST = 1  # what cannot be judged, before it is taken for an end


class RangeBound(msgspec.Struct, frozen=True, kw_only=True):
    """One end of the releases with a race.

    bad: the release at this end with it; beyond: the next one without it, or the first of those in
        which nothing can be judged; empty: there is no further release
    shows, said: of the one beyond; between: releases between the two, which could not be judged
    """

    bad: str
    beyond: str = ""
    shows: Shows = Shows.BAD
    said: str = ""
    between: tuple[str, ...] = ()


class FaultyRange(msgspec.Struct, frozen=True, kw_only=True):
    """The releases in which a program races.

    package: its name; program: the script with its arguments
    brought: the earlier end; repaired: the later one
    asked: in their order; releases: of the package, how many
    """

    schema: str = SCHEMA
    package: str
    program: str
    brought: RangeBound
    repaired: RangeBound
    asked: tuple[AskedRelease, ...]
    releases: int

    @property
    def exit_code(self) -> ExitCode:
        """1 both ends are known, 4 one of them is one of several."""
        is_open = self.brought.between or self.repaired.between
        return ExitCode.INCONCLUSIVE if is_open else ExitCode.FINDING


@dataclass(slots=True)
class _Asking:
    """Releases, each asked once."""

    versions: Sequence[str]
    judged: Callable[[str], AskedRelease]
    known: dict[int, AskedRelease] = field(default_factory=dict)

    def at(self, place: int) -> AskedRelease:
        if place not in self.known:
            self.known[place] = self.judged(self.versions[place])
        return self.known[place]

    def end(self, bad: int, step: int) -> RangeBound:
        """Away from a release with the race, in strides that double, then between the last two."""
        last = len(self.versions) - 1 if step > 0 else 0
        place, stride, absent = bad, step, list[int]()
        while place != last and len(absent) <= STRIDES_PAST:
            place = min(place + stride, last) if step > 0 else max(place + stride, last)
            stride *= 2
            match self.at(place).shows:
                case Shows.GOOD:
                    return self._between(place, bad)
                case Shows.BAD:
                    bad, absent = place, []
                case Shows.SKIPPED:
                    absent.append(place)
        return self._between(absent[0], bad) if absent else RangeBound(bad=self.versions[bad])

    def _between(self, good: int, bad: int) -> RangeBound:
        """Where nothing can be judged beyond the race, that is an end as well as no race is."""
        places = range(good, bad + 1) if good < bad else range(good, bad - 1, -1)
        is_absent = self.at(good).shows is Shows.SKIPPED

        def ask(at: int) -> Shows:
            shows = self.at(places[at]).shows
            return Shows.GOOD if is_absent and shows is Shows.SKIPPED else shows

        found = bisected(len(places) - 1, ask)
        beyond = self.at(places[found.good])
        return RangeBound(
            bad=self.versions[places[found.bad]],
            beyond=beyond.release,
            shows=beyond.shows,
            said=beyond.said,
            between=tuple(self.versions[place] for place in places[found.good + 1 : found.bad]),
        )


def faulty_range(
    history: History, versions: Sequence[str], bad: str, *, package: str, folder: Path, say: Say
) -> FaultyRange:
    """Looks for both ends of the releases with a race. What is kept in the folder is not run again.

    Args:
        history: the program on versions of the package.
        versions: the oldest first.
        bad: one in which the program races.
        package: what pip calls it.
        folder: of the cells.
        say: is told what is done.

    Raises:
        BadInput: the program does not race in `bad`, or cannot be judged there.
    """
    asking = _Asking(versions, lambda version: judged_release(history, version, folder, say))
    at = versions.index(bad)
    if asking.at(at).shows is not Shows.BAD:
        found = asking.at(at)
        raise BadInput(f"{bad} is not bad, but {found.shows}: {found.said}")
    brought, repaired = asking.end(at, -1), asking.end(at, 1)
    (name,) = history.names
    return FaultyRange(
        package=package,
        program=name,
        brought=brought,
        repaired=repaired,
        asked=tuple(asking.known.values()),
        releases=len(versions),
    )
