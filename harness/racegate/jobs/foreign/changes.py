"""Which scenarios run what a change has changed: its source beside its base's, and the lines of the
base that each scenario runs.

A place is looked for by its statement. Where the scope of it is run by no scenario at all, the
engine's start may run it, and where it is in no function an import does: then all of them count.
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Plan
from racegate.jobs.foreign.bases import content_of
from racegate.jobs.foreign.releases import OpenedEngine, ReleaseCell, kind_of
from racegate.scenario.spec import Scenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.targets.common.environment import cache_folder
from racegate.targets.common.wire import ReleaseRun, SourceOptions

Lines = dict[str, frozenset[int]]  # by file below the package, from 1
_FILE_BYTES_MAX = 1 << 26
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ChangedPlace(StrictStruct, frozen=True, order=True):
    """A statement of the base that the change has not, or beside which it has another.

    scope: the function that it is in, empty if it is in none; lines: of the statement, first and
    last; whole: those of the function
    """

    file: str
    lines: tuple[int, int]
    scope: str = ""
    whole: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class ChangedRuns:
    """names: of scenarios that run something of the change, or may

    everywhere: places because of which all do; unrun: places that no scenario runs
    """

    places: tuple[ChangedPlace, ...]
    names: tuple[str, ...]
    everywhere: tuple[ChangedPlace, ...]
    unrun: tuple[ChangedPlace, ...]


def changed_runs(places: Sequence[ChangedPlace], known: Mapping[str, Lines]) -> ChangedRuns:
    """Which scenarios run what. known: lines of the base that each runs, by its name"""
    run_by: dict[ChangedPlace, list[str]] = {
        place: [name for name, lines in known.items() if _has(lines, place.file, place.lines)]
        for place in places
    }
    rest = [place for place, names in run_by.items() if not names]
    unrun = [
        place
        for place in rest
        if place.scope and any(_has(lines, place.file, place.whole) for lines in known.values())
    ]
    everywhere = [place for place in places if not place.scope or place in set(rest) - set(unrun)]
    chosen = set(known) if everywhere else {name for names in run_by.values() for name in names}
    return ChangedRuns(
        places=tuple(places),
        names=tuple(name for name in known if name in chosen),
        everywhere=tuple(everywhere),
        unrun=tuple(unrun),
    )


def _has(lines: Lines, file: str, span: tuple[int, int]) -> bool:
    first, last = span
    return not lines.get(file, frozenset()).isdisjoint(range(first, last + 1))


def changed_places(base: ReleaseCell, change: ReleaseCell) -> list[ChangedPlace]:
    """Where the source of a change is not that of its base, in the files that both have."""
    before, after = (_package_of(one) for one in (base, change))
    found: set[ChangedPlace] = set()
    for path in sorted(before.rglob("*.py")):
        file = str(path.relative_to(before))
        other = after / file
        new = other.read_text() if other.exists() else ""
        found |= set(places_of(file, path.read_text(), new))
    return sorted(found)


def _package_of(cell: ReleaseCell) -> Path:
    packaging = kind_of(cell).packaging
    environment = packaging.environment_of(cell.release, checkout=cell.checkout)
    return environment.package(packaging.module)


def places_of(file: str, before: str, after: str) -> Iterator[ChangedPlace]:
    """Of one file; comments and blank lines are no change, and a file that is not Python has one
    place, which is in no function.
    """
    if before == after:
        return
    try:
        trees = [ast.parse(text) for text in (before, after)]
    except SyntaxError:
        yield ChangedPlace(file, (1, max(1, before.count("\n"))))
        return
    if ast.dump(trees[0]) == ast.dump(trees[1]):
        return
    statements = sorted(_statements(trees[0]))
    starts = [one[0] for one in statements]
    for line in sorted(_changed_lines(before.splitlines(), after.splitlines())):
        at = bisect_right(starts, line) - 1
        if at < 0:
            yield ChangedPlace(file, (line, line))
            continue
        first, last, scope, begin, end = statements[at]
        yield ChangedPlace(file, (first, last), scope, (begin, end))


def _changed_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[int]:
    """Lines of the first that the second has otherwise; of what is put in, the line before it."""
    head = _same(before, after)
    old, new = before[head:], after[head:]
    tail = _same(old[::-1], new[::-1])
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "insert" and any(line.strip() for line in new[begin:end]):
            yield max(1, head + first)
        elif tag in ("delete", "replace"):
            yield from (head + at + 1 for at in range(first, last) if old[at].strip())


def _same(some: Sequence[str], others: Sequence[str]) -> int:
    """How many lines two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(bool, map(eq, some, others)))


def _statements(tree: ast.Module) -> Iterator[tuple[int, int, str, int, int]]:
    """(first, last, scope, first and last of the scope) of each; of one with a body its head."""
    waiting: list[tuple[ast.AST, tuple[str, ...], str, int, int]] = [(tree, (), "", 0, 0)]
    while waiting:
        node, names, scope, begin, end = waiting.pop()
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            head = last if not isinstance(body, list) else max(node.lineno, body[0].lineno - 1)
            yield node.lineno, head, scope, begin, end
            if isinstance(node, _Function | ast.ClassDef):
                names = (*names, node.name)
            if isinstance(node, _Function):
                scope, begin, end = ".".join(names), node.lineno + 1, last
        waiting += [(child, names, scope, begin, end) for child in ast.iter_child_nodes(node)]


@dataclass(frozen=True, slots=True)
class KnownLines:
    """The lines that scenarios run on a base, kept by the content of all that decides them.

    opened: its engine, which is started if something is not kept
    """

    cell: ReleaseCell
    opened: Callable[[], OpenedEngine]
    folder: Path = field(default_factory=lambda: cache_folder("lines"))

    def of(self, scenarios: Sequence[Scenario]) -> dict[str, Lines]:
        """By the name of the scenario. Raises BadInput if the engine does not start."""
        content = self.content()
        return {one.name: self.one(one, content) for one in scenarios}

    def content(self) -> str:
        """Of all that the engine is."""
        return content_of(self.cell)

    def one(self, scenario: Scenario, content: str) -> Lines:
        """Of one scenario. content: from `content`. Raises BadInput if its run tells none: it did
        not end in time, and what it runs is not known.
        """
        place = self.folder / f"{self._key(content, scenario)}.json"
        if (kept := _read(place)) is not None:
            return kept
        ran = _traced(self.opened(), scenario)
        found = {file: frozenset(lines) for file, lines in ran.lines.items()}
        if not found:
            why = ran.message or "its run did not end"
            raise BadInput(f"what scenario {scenario.name} runs is not known: {why}")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(place, found)
        return found

    def _key(self, content: str, scenario: Scenario) -> str:
        cell = msgspec.structs.replace(self.cell, checkout=None)
        return hashlib.sha256(msgspec.json.encode((content, cell, scenario))).hexdigest()[:32]


def _traced(opened: OpenedEngine, scenario: Scenario) -> ReleaseRun:
    sources = SourceOptions(traces=True)
    return opened.engine.run(scenario, Plan(is_recording=False), sources=sources)


def _read(path: Path) -> Lines | None:
    """What was kept, None if nothing was."""
    try:
        return msgspec.convert(read_json(path, _FILE_BYTES_MAX), Lines)
    except (ReadError, msgspec.ValidationError):
        return None
