"""Edits of the source, the mutants that they make, and what became of them, as data; and those
that are known to change nothing, with the reason.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_text

EQUIVALENTS_BYTES_MAX = 1 << 20


class SourceOperator(StrEnum):
    """What is done to the source."""

    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    CONSTANT = "constant off by one"
    CONDITION = "negated condition"
    STATEMENT = "removed statement"
    ARGUMENTS = "swapped arguments"
    LOOP = "break and continue"
    SLICE = "slice bound"
    CHOICE = "min and max"
    WRAPPER = "removed wrapper"
    STEP = "wrong step"
    ROW = "wrong row"
    FIELD = "forgotten field"
    STALE = "stale for fresh"
    CLAMP = "clamp"
    BRANCH = "one branch of two"
    RESET = "missing reset"
    MOVED = "moved record or wait"
    STREAM = "wrong stream"


class Edit(StrictStruct, frozen=True):
    """One mutant of a file.

    scope: the class and function that it is in; lines: from the first one of its statement to its
        own last one, from 1; start, end: the bytes that are replaced; text: by what
    """

    operator: SourceOperator
    scope: str
    lines: tuple[int, int]
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The mutated file."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def shown(self, source: bytes) -> tuple[str, str]:
        """The lines that differ, before and after, without indentation."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.end)
        before = source[first:last].decode()
        after = source[first : self.start].decode() + self.text + source[self.end : last].decode()
        return _joined(before), _joined(after)


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


class SourceFate(StrEnum):
    """killed: a finding, an error of the harness, a failing test, or no end; inconclusive: the gate
    ended with neither a pass nor a finding; equivalent: survived, and it is written down why that
    changes nothing; survived: nobody noticed; unreached: nobody runs the line
    """

    KILLED = "killed"
    INCONCLUSIVE = "inconclusive"
    EQUIVALENT = "equivalent"
    SURVIVED = "survived"
    UNREACHED = "unreached"


# What a scenario more, or another observation, may notice.
MISSED = frozenset({SourceFate.SURVIVED, SourceFate.INCONCLUSIVE})


class SourceMutant(StrictStruct, frozen=True):
    """One edit of one file. file: from the root of the repository; before, after: its lines

    nth: of those of its function that look the same
    """

    file: str
    edit: Edit
    before: str
    after: str
    nth: int = 0

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.file}:{self.edit.lines[0]} {self.before} -> {self.after}"

    @property
    def key(self) -> str:
        """The same wherever in its file its lines have moved."""
        parts = (self.file, self.edit.scope, self.before, self.after, self.edit.operator)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
        return f"{digest}.{self.nth}" if self.nth else digest


class SourceResult(StrictStruct, frozen=True):
    """One mutant and its fate.

    key: what the mutant is known by; file: from the root of the repository
    scope: the class and function; line: where its statement begins; operator: what was done
    before, after: the lines that differ; fate: what became of it
    by: the scenario, witness or test that killed it; how: what that said, or how it ended
    reason: why it changes nothing; cpu_s: seconds of computing
    feature: of the engine that the line belongs to, where mutants are drawn by feature
    """

    key: str
    file: str
    scope: str
    line: int
    operator: SourceOperator
    before: str
    after: str
    fate: SourceFate
    by: str = ""
    how: str = ""
    reason: str = ""
    cpu_s: float = 0.0
    feature: str = ""


def fate_result(
    mutant: SourceMutant, fate: SourceFate, *, by: str = "", how: str = "", cpu_s: float = 0.0
) -> SourceResult:
    """What became of a mutant. by: what noticed it; how: in words"""
    return SourceResult(
        key=mutant.key,
        file=mutant.file,
        scope=mutant.edit.scope,
        line=mutant.edit.lines[0],
        operator=mutant.edit.operator,
        before=mutant.before,
        after=mutant.after,
        fate=fate,
        by=by,
        how=how,
        cpu_s=round(cpu_s, 2),
    )


class EquivalentEntry(StrictStruct, frozen=True):
    """A mutant that is known to change nothing that matters. before, after: its lines; nth: as of
    the mutant; within: a setting of what is mutated, if it is so in that alone
    """

    file: str
    scope: str
    before: str
    after: str
    reason: str
    nth: int = 0
    within: str = ""


class EquivalentFile(StrictStruct, frozen=True):
    """The committed ones."""

    equivalent: tuple[EquivalentEntry, ...] = ()


class EquivalentError(BadInputError):
    """An entry that cannot be read, or that is of no mutant: says which."""


class EquivalentTable:
    """Looks mutants up among the entries of a file."""

    def __init__(self, entries: Iterable[EquivalentEntry], *, path: Path) -> None:
        self._path = path
        self._entries = {
            (each.file, each.scope, each.before, each.after, each.nth): each for each in entries
        }

    @property
    def entries(self) -> list[EquivalentEntry]:
        """All of them, by file."""
        return sorted(self._entries.values(), key=lambda entry: entry.file)

    def of(self, mutant: SourceMutant) -> str:
        """The reason why a mutant changes nothing; empty if none is known."""
        found = self._entries.get(_looks(mutant))
        return "" if found is None else found.reason

    def applied(self, mutant: SourceMutant, result: SourceResult) -> SourceResult:
        """The result, if it is known to be equivalent with the reason. Raises EquivalentError if it
        was killed after all.
        """
        reason = self.of(mutant)
        if not reason:
            return result
        if result.fate is SourceFate.KILLED:
            raise EquivalentError(
                f"{self._path}: {mutant.name} is said to change nothing, and {result.by} kills it "
                f"({result.how}): delete the entry"
            )
        return msgspec.structs.replace(result, fate=SourceFate.EQUIVALENT, reason=reason)

    def check(self, mutants: Sequence[SourceMutant]) -> None:
        """Raises EquivalentError for an entry of a mutated file that is of none of all mutants."""
        files = {mutant.file for mutant in mutants}
        known = set(map(_looks, mutants))
        for key, entry in self._entries.items():
            if entry.file in files and key not in known:
                raise EquivalentError(
                    f"{self._path}: no mutant of {entry.file}, {entry.scope} has the lines "
                    f"'{entry.before}' -> '{entry.after}': the source has changed; look again, "
                    "and put the entry right or delete it"
                )


def _looks(mutant: SourceMutant) -> tuple[str, str, str, str, int]:
    """What an entry knows a mutant by."""
    return (mutant.file, mutant.edit.scope, mutant.before, mutant.after, mutant.nth)


def load_equivalents(path: Path | None, *, settings: Collection[str] = ()) -> EquivalentTable:
    """Reads a file strictly; there are none without one. settings: of what is mutated. Raises
    EquivalentError.
    """
    if path is None:
        return EquivalentTable((), path=Path())
    try:
        content = decode_toml(read_text(path, EQUIVALENTS_BYTES_MAX))
        file = msgspec.convert(content, EquivalentFile)
    except (ReadError, msgspec.ValidationError) as error:
        raise EquivalentError(f"{path}: {error}") from error
    entries = [one for one in file.equivalent if not one.within or one.within in settings]
    return EquivalentTable(entries, path=path)


class SourceScore(StrictStruct, frozen=True):
    """How many of some mutants came to what. score: killed of those that matter, in percent"""

    mutants: int
    killed: int
    inconclusive: int
    equivalent: int
    survived: int
    unreached: int

    @property
    def matter(self) -> int:
        """How many change something."""
        return self.mutants - self.equivalent

    @property
    def exit_code(self) -> ExitCode:
        """Of a command that judged them: where none matters, nothing is known."""
        if not self.matter:
            return ExitCode.INCONCLUSIVE
        return ExitCode.CLEAN if self.killed == self.matter else ExitCode.FINDING

    @property
    def score(self) -> float:
        """100 if none matters."""
        return 100 * self.killed / self.matter if self.matter else 100.0

    def percent(self, digits: int = 1) -> str:
        """The score, as it is shown; a dash where none matters."""
        return f"{self.score:.{digits}f} %" if self.matter else "–"


def score_of(results: Sequence[SourceResult]) -> SourceScore:
    """The sums."""
    fates = Counter(result.fate for result in results)
    return SourceScore(mutants=len(results), **{str(fate): fates[fate] for fate in SourceFate})


class SourceSpec(StrictStruct, frozen=True):
    """What is asked of a job. sample: so many mutants that matter, drawn by the seed; those that
        are known to change nothing are drawn beside them; None is all of them

    per_feature: so many of each feature of the engine, in the place of a sample of all
    keep: a file to go on with; equivalent: that of mutants known to change nothing
    """

    source: str
    sample: int | None = None
    per_feature: int | None = None
    seed: int = 0
    keep: Path | None = None
    equivalent: Path | None = None


class SourceReport(StrictStruct, frozen=True):
    """What was mutated, and what became of it.

    source: a room, or the engine with its kernels; total: mutants that there are
    sample: how many that matter were asked for, null for all; results: of those that were tried
    per_feature: how many that matter were asked for of each feature, null where not by feature
    failing: tests that fail without a mutant where mutants are judged, and so judge none
    """

    source: str
    total: int
    sample: int | None
    seed: int
    results: tuple[SourceResult, ...]
    per_feature: int | None = None
    failing: tuple[str, ...] = ()
