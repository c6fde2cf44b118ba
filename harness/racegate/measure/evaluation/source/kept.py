"""What earlier runs of the job came to, in files of lines that grow: a digest of all that a line
hangs on, and what was found. A kill may cut the last line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.measure.evaluation.source.reach import LineReach
from racegate.measure.evaluation.source.results import (
    MISSED,
    EquivalentTable,
    SourceFate,
    SourceMutant,
    SourceResult,
)
from racegate.measure.evaluation.source.sources import ROOT, Source, files_of

T = TypeVar("T")


def lines_of(path: Path | None, kind: type[T]) -> Iterator[tuple[str, T]]:
    """What earlier runs wrote, each with its digest."""
    if path is not None and path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                digest, found = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
                yield digest, msgspec.json.decode(found, type=kind)


def add_line(path: Path | None, digest: str, found: object) -> None:
    """One more; nowhere without a file."""
    if path is not None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode((digest, found)) + b"\n")


class KeptResults:
    """What became of mutants.

    Killed stays killed as long as the mutant is the same. Whoever survived is tried again once a
    test, a scenario or the source has changed, unless it is known to be equivalent.
    """

    def __init__(self, path: Path | None, state: str, equivalents: EquivalentTable) -> None:
        self._path = path
        self._state = state
        self._equivalents = equivalents
        self._known: dict[str, tuple[str, SourceResult]] = {}
        for state_then, result in lines_of(path, SourceResult):
            self._known[result.key] = (state_then, result)

    def result(self, mutant: SourceMutant) -> SourceResult | None:
        """What is known of a mutant."""
        state, result = self._known.get(mutant.key, ("", None))
        if result is None:
            return None
        is_settled = result.fate is SourceFate.KILLED or self._equivalents.of(mutant)
        if state != self._state and not is_settled:
            return None
        return msgspec.structs.replace(result, line=mutant.edit.lines[0])

    def before(self, mutant: SourceMutant) -> SourceResult | None:
        """What became of a mutant when it was last judged, whatever has changed since."""
        return self._known.get(mutant.key, ("", None))[1]

    def has_missed(self, mutant: SourceMutant) -> bool:
        """Whether a mutant survived then, and is not known to be equivalent."""
        before = self.before(mutant)
        return before is not None and before.fate in MISSED and not self._equivalents.of(mutant)

    def known(self, mutant: SourceMutant) -> SourceResult:
        """The same of one that is known."""
        result = self.result(mutant)
        assert result is not None, mutant.name
        return result

    def add(self, result: SourceResult) -> None:
        """One more."""
        self._known[result.key] = (self._state, result)
        add_line(self._path, self._state, result)


class KeptReach:
    """Which lines the tests of a file execute, by a digest of that file and of what is mutated.

    A change elsewhere may have moved what they execute: then they judge a mutant more or less, and
    none is killed by that.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.found = dict(lines_of(path, LineReach))

    def add(self, digest: str, reach: LineReach) -> None:
        """One more."""
        self.found[digest] = reach
        add_line(self._path, digest, reach)


def state_of(source: Source) -> str:
    """A digest of everything that a fate hangs on: sources, scenarios, tests."""
    judges = ("tests/helpers", *source.tests, *source.elsewhere) if source.tests else ("scenarios",)
    return _digest(
        path
        for part in ("harness/racegate", "kernels", "reference", *judges)
        for path in ([ROOT / part] if (ROOT / part).is_file() else sorted((ROOT / part).rglob("*")))
        if path.suffix in (".py", ".toml", ".c", ".h")
    )


def digest_of(source: Source, part: str) -> str:
    """Of what its recording hangs on: all that a fate does for the gate, and for a file of tests
    that and the sources.
    """
    return _digest([ROOT / part, *files_of(source)]) if source.tests else state_of(source)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()
