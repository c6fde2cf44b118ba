"""A finding of a program as a plain test, without racegate: the program corrupts a value when one
operation is late, and does not with the repair.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from racegate.history.finding import Frame, Race
from racegate.history.schedule import Hold, Holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, PlaceSeen
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repair import from_here
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
from racegate.targets.program.source import LineEdit, LineSide

LATCH = Path(__file__).with_name("latch.py")
TURNS_MAX = 4  # of either line, tried from what the hold names on
RUNS_MAX = 64
_OBSERVES = re.compile(r"\bracegate\.observe\(")
_IMPORTS = re.compile(r"^(?:import racegate|from racegate(?:\.interpose)? import observe)\n", re.M)
_NUMBER = re.compile(r"#(\d+)$")


class LatchPlaces:
    """The lines of a script between which an operation is held. Raises BadInput where it has no
    such lines, or where the stream has no name.
    """

    def __init__(self, script: str, race: Race, texts: SourceFiles, places: dict[str, PlaceSeen]):
        self.close_at, self.open_at = (
            _frame_in(side.stack, script) for side in (race.first, race.second)
        )
        edges, first, second = PossibleEdges(texts, places), race.first, race.second
        closed = edges.stream(key_of(self.close_at, LineSide.BEFORE), first.lane)
        opened = edges.stream(key_of(self.open_at, LineSide.AFTER), second.lane)
        if closed is None or (opened is None and not second.is_host):
            raise BadInput(
                f"the script has no name for the stream of the operation at {first.place}, or for "
                f"that of {second.place}, where it would have to be held"
            )
        self._closing = f"latch.close({closed})"
        self._opening = "latch.open()" if second.is_host else f"latch.open({opened})"

    def edge(self, script: str) -> SourceEdge:
        """What holds the operation, to be put into the script beside edges."""
        lines = (
            LineEdit(self.close_at[1], LineSide.BEFORE, self._closing),
            LineEdit(self.open_at[1], LineSide.AFTER, self._opening),
        )
        return SourceEdge(
            kind=EdgeKind.EVENT,
            waiter=WaitKind.NOBODY,
            words="a latch",
            depth=0,
            edits=(FileEdit(path=script, insertions=lines),),
        )


def _frame_in(stack: tuple[Frame, ...], script: str) -> Frame:
    for frame in stack:
        if path_of(frame[0]) == script:
            return frame
    raise BadInput(f"{from_here(script)} has no line of the access that is to be held")


def export_test(device: DeviceServer, program: Program, race_of: str, holds: Holds) -> str:
    """A module of pytest that shows one finding of a script: that the program corrupts, and that
    with its repair it does not, where the script alone is repaired. race_of: the finding's
    signature; holds: its smallest ones

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
    held = LatchPlaces(script, race, texts, probed.outcome.places).edge(script)
    control = texts.changed([held])[0][script]
    turns = _turns(trials, control, script, holds[0], race)
    edges = repairing_edges(trials)
    repaired = texts.changed([*edges, held])[0]
    fixed = plain_source(repaired[script]) if edges and set(repaired) == {script} else None
    return _module(race, plain_source(control), fixed, turns)


def _script_of(program: Program, holds: Holds) -> str:
    if len(holds) != 1 or holds[0].half is not None:
        raise BadInput("a plain test holds one whole operation: this finding needs more")
    if program.argv[0] == "-m":
        raise BadInput("a plain test has the text of a script: this is a module")
    return path_of(program.argv[0])


def _turns(trials: Trials, control: str, script: str, hold: Hold, race: Race) -> tuple[int, int]:
    """At which turn of its line the latch closes, and at which of the other it opens: those at
    which the program observes something else.
    """
    latch, base = LATCH.read_text(), trials.base.outcome
    second = next((b for a, b in race.pairs if a == hold.op), race.second.label)
    for close_at, open_at in _nearest(_number(hold.op), _number(second)):
        start = f"{latch}\nlatch = StreamLatch({close_at}, {open_at})\n"
        seen = trials.run(trials.repaired({script: _in_front(start, control)})).outcome
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


def _module(race: Race, control: str, fixed: str | None, turns: tuple[int, int]) -> str:
    latch = LATCH.read_text().partition('"""\n')[2]
    head = (
        '"""Whether two accesses are ordered.\n\n'
        f"first   {race.first.operation} at {race.first.place}\n"
        f"second  {race.second.operation} at {race.second.place}\n\n"
        'Needs torch with CUDA, and cuda-bindings.\n"""\n'
    )
    parts = [head + latch, f"\nCONTROL = {_quoted(control)}"]
    parts += [] if fixed is None else [f"REPAIRED = {_quoted(fixed)}"]
    late = f"StreamLatch(close_at={turns[0]}, open_at={turns[1]})"
    # Settled first: that loads the kernels, which would wait for a stream that is held.
    parts.append(
        "\ndef test_the_control_corrupts() -> None:\n"
        "    settled = observed(CONTROL, StreamLatch())\n"
        f"    late = observed(CONTROL, {late})\n"
        "    assert late != settled\n"
    )
    if fixed is not None:
        parts.append(
            "\ndef test_the_repaired_program_is_clean() -> None:\n"
            "    settled = observed(REPAIRED, StreamLatch())\n"
            f"    late = observed(REPAIRED, {late})\n"
            "    assert late == settled\n"
        )
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A literal on lines of its own."""
    return "'''\\\n" + text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'") + "'''\n"
