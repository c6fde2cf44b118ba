"""A finding of a program as a plain test, without racegate: the program corrupts a value when one
operation is late, and does not with the repair.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from pprint import pformat
from typing import NamedTuple

from racegate.history.finding import Frame, Race, Side
from racegate.history.schedule import Hold, Holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, PlaceSeen
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repair import from_here, module_of
from racegate.targets.program.repairs.candidates import PossibleEdges, key_of, probing
from racegate.targets.program.repairs.edges import (
    EdgeKind,
    FileEdit,
    SourceEdge,
    SourceFiles,
    WaitKind,
    path_of,
)
from racegate.targets.program.repairs.proof import repairing_edges
from racegate.targets.program.repairs.trials import Trials
from racegate.targets.program.source import LineEdit, LineSide, NoPlaceError

LATCH = Path(__file__).with_name("latch.py")
LIBRARY = Path(__file__).with_name("latched_library.py")
TURNS_MAX = 4  # of either line, tried from what the hold names on
RUNS_MAX = 64
_OBSERVES = re.compile(r"\bracegate\.observe\(")
_IMPORTS = re.compile(r"^(?:import racegate|from racegate(?:\.interpose)? import observe)\n", re.M)
_NUMBER = re.compile(r"#(\d+)$")


class ExportedKind(StrEnum):
    """What a test says. CONTROL: the program as it is corrupts, repaired it does not; REGRESSION:
    it does not, which fails as long as the race is there
    """

    CONTROL = "control"
    REGRESSION = "regression"


class LatchLine(NamedTuple):
    """One of the two lines that hold an operation, in the script or in a module of a library.

    statement: beside which it stands there, as Python writes it
    """

    file: str
    edit: LineEdit
    statement: str


class LatchPlaces:
    """The lines between which an operation is held: in the script where its streams have names
    there, else in the library. Raises BadInput where there are no such lines.
    """

    def __init__(self, script: str, race: Race, texts: SourceFiles, places: dict[str, PlaceSeen]):
        self._texts = texts
        self._edges = PossibleEdges(texts, places)
        first, second = race.first, race.second
        self.lines = (
            self._line(script, first, LineSide.BEFORE, "close"),
            self._line(script, second, LineSide.AFTER, "open"),
        )

    def _line(self, script: str, side: Side, where: LineSide, does: str) -> LatchLine:
        frames = sorted(side.stack, key=lambda frame: path_of(frame[0]) != script)
        for frame in frames:
            stream = self._edges.stream(key_of(frame, where), side.lane)
            opens_for_host = side.is_host and where is LineSide.AFTER
            if stream is None and not opens_for_host:
                continue
            with suppress(NoPlaceError):
                text = f"latch.{does}({'' if opens_for_host else stream})"
                one = LineEdit(frame[1], where, text)
                path = path_of(frame[0])
                statement = "" if path == script else self._statement(frame, one)
                return LatchLine(path, one, statement)
        raise BadInput(
            f"the stream of the operation at {side.place} has no name at a line where it could be "
            "held"
        )

    def _statement(self, frame: Frame, one: LineEdit) -> str:
        """That of a library, if it is the only one that reads so, and its module is known. Raises
        NoPlaceError.
        """
        source = self._texts.of(frame[0])
        source.with_lines([one])
        text = ast.unparse(ast.parse(textwrap.dedent(source.statement(frame[1]))))
        is_behind = one.where is LineSide.AFTER
        if source.count_of(text) != 1 or (is_behind and text.startswith("return")):
            raise NoPlaceError(f"line {frame[1]} is no statement of its own kind")
        return text

    def edge(self) -> SourceEdge:
        """What holds the operation, to be put in beside edges."""
        return SourceEdge(
            kind=EdgeKind.EVENT,
            waiter=WaitKind.NOBODY,
            words="a latch",
            depth=0,
            edits=tuple(
                FileEdit(
                    path=path, insertions=tuple(one.edit for one in self.lines if one.file == path)
                )
                for path in dict.fromkeys(one.file for one in self.lines)
            ),
        )

    def in_library(self, script: str) -> dict[str, list[tuple[str, bool, str]]]:
        """Of each module of a library: statements, whether a line goes behind, and the line. Raises
        BadInput if a file is in no package.
        """
        found: dict[str, list[tuple[str, bool, str]]] = {}
        for one in self.lines:
            if one.file != script:
                try:
                    module = module_of(Path(one.file))
                except ValueError as error:
                    raise BadInput(f"{from_here(one.file)}: {error}") from None
                is_behind = one.edit.where is LineSide.AFTER
                found.setdefault(module, []).append((one.statement, is_behind, one.edit.text))
        return found


def export_test(
    device: DeviceServer,
    program: Program,
    race_of: str,
    holds: Holds,
    *,
    kind: ExportedKind = ExportedKind.CONTROL,
) -> str:
    """A module of pytest that shows one finding of a script: that the program corrupts, and that
    with its repair it does not; or, where a library has to be repaired, that it does not, which
    fails until then. race_of: the finding's signature; holds: its smallest ones

    Raises BadInput with the reason where the finding cannot be shown so.
    """
    script = _script_of(program, holds)
    texts = SourceFiles()
    trials = Trials(device, program, texts, RUNS_MAX)
    trials.begin()
    base = trials.base.outcome
    race = next((one for one in base.findings if one.signature == race_of), None)
    if base.ending is not Ending.FINISHED or race is None:
        raise BadInput(f"the program has no finding {race_of} now")
    probed = trials.run(trials.repaired(probing([race], texts)))
    places = LatchPlaces(script, race, texts, probed.outcome.places)
    library, held = places.in_library(script), places.edge()
    control = {script: texts.of(script).text, **texts.changed([held])[0]}
    turns = _turns(trials, control, script, holds[0], race)
    edges = repairing_edges(trials) if kind is ExportedKind.CONTROL and not library else ()
    repaired = texts.changed([*edges, held])[0]
    has_repair = bool(edges) and set(repaired) == {script}
    plain = [
        plain_source(_in_front(_arguments(program), text))
        for text in (control[script], *([repaired[script]] if has_repair else []))
    ]
    return _module(race, plain, turns, library)


def _script_of(program: Program, holds: Holds) -> str:
    if len(holds) != 1 or holds[0].half is not None:
        raise BadInput("a plain test holds one whole operation: this finding needs more")
    if program.argv[0] == "-m":
        raise BadInput("a plain test has the text of a script: this is a module")
    return path_of(program.argv[0])


def _turns(
    trials: Trials, control: dict[str, str], script: str, hold: Hold, race: Race
) -> tuple[int, int]:
    """At which turn of its line the latch closes, and at which of the other it opens: those at
    which the program observes something else.
    """
    latch, base = LATCH.read_text(), trials.base.outcome
    second = next((b for a, b in race.pairs if a == hold.op), race.second.label)
    for close_at, open_at in _nearest(_number(hold.op), _number(second)):
        start = f"{latch}\nimport builtins\nbuiltins.latch = StreamLatch({close_at}, {open_at})\n"
        held = {**control, script: _in_front(start, control[script])}
        seen = trials.run(trials.repaired(held)).outcome
        if seen.ending is Ending.FINISHED and seen.differs(base):
            return close_at, open_at
    raise BadInput("with the operation held at the script's lines nothing else is observed")


def _nearest(close_at: int, open_at: int) -> Iterator[tuple[int, int]]:
    turns = range(1, TURNS_MAX + 1)
    every = [(one, other) for one in turns for other in turns]
    yield from sorted(every, key=lambda one: abs(one[0] - close_at) + abs(one[1] - open_at))


def _number(label: str) -> int:
    found = _NUMBER.search(label)
    return int(found[1]) if found else 1


def _arguments(program: Program) -> str:
    if len(program.argv) == 1:
        return ""
    return f"import sys\n\nsys.argv = {list(program.argv)!r}\n"


def _in_front(start: str, text: str) -> str:
    """Behind the docstring and what has to stand first of a module."""
    tree = ast.parse(text)
    first = [
        node
        for node in tree.body
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    at = max((node.end_lineno or node.lineno for node in first), default=0)
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:at], start, *lines[at:]])


def plain_source(text: str) -> str:
    """A script without racegate: what it observes goes to `observe`. Raises BadInput if it uses
    more of it.
    """
    found = _OBSERVES.sub("observe(", _IMPORTS.sub("", text))
    names = {node.id for node in ast.walk(ast.parse(found)) if isinstance(node, ast.Name)}
    if "racegate" in names or re.search(r"^\s*(import|from) racegate", found, re.M):
        raise BadInput("the script uses more of racegate than observe")
    if "observe" not in names:
        raise BadInput("the script observes nothing that a test could compare")
    return found


def _module(
    race: Race,
    programs: Sequence[str],
    turns: tuple[int, int],
    library: dict[str, list[tuple[str, bool, str]]],
) -> str:
    latch = LATCH.read_text().partition('"""\n')[2]
    if library:
        latch += "\n\n" + LIBRARY.read_text().partition('"""\n')[2].replace(
            "LATCHED: dict[str, list[tuple[str, bool, str]]] = {}",
            f"LATCHED: dict[str, list[tuple[str, bool, str]]] = {pformat(library, width=99)}",
        )
    head = (
        '"""Whether two accesses are ordered.\n\n'
        f"first   {race.first.operation} at {race.first.place}\n"
        f"second  {race.second.operation} at {race.second.place}\n\n"
        'Needs torch with CUDA, and cuda-bindings.\n"""\n'
    )
    names = ("PROGRAM",) if len(programs) == 1 else ("CONTROL", "REPAIRED")
    parts = [head + latch, ""]
    parts += [f"{name} = {_quoted(text)}" for name, text in zip(names, programs, strict=True)]
    latches = ("StreamLatch()", f"StreamLatch(close_at={turns[0]}, open_at={turns[1]})")
    open_latch, late = (f"known({one})" if library else one for one in latches)
    # Settled first: that loads the kernels, which would wait for a stream that is held.
    told = [
        ("the_control_corrupts", "CONTROL", "!="),
        ("the_repaired_program_is_clean", "REPAIRED", "=="),
    ]
    if len(programs) == 1:
        told = [("a_late_operation_changes_nothing", "PROGRAM", "==")]
    parts += [
        f"\ndef test_{name}() -> None:\n"
        f"    settled = observed({program}, {open_latch})\n"
        f"    late = observed({program}, {late})\n"
        f"    assert late {compared} settled\n"
        for name, program, compared in told
    ]
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A literal on lines of its own."""
    return "'''\\\n" + text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'") + "'''\n"
