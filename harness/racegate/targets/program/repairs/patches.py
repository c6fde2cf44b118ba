"""A patch of the user's, put into a program in memory and judged: what it repairs, what it leaves,
and what it adds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Race
from racegate.history.schedule import texts_of
from racegate.history.verdict import verdict_text
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Outcome
from racegate.order.recorder import WaitTotal
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, read_text
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repair import SOURCE_BYTES_MAX, from_here
from racegate.targets.program.repairs.edges import SourceFiles
from racegate.targets.program.repairs.trials import Seen, Trials

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
_SYNCHRONIZES = re.compile(r"\b(synchronize|wait|wait_event|wait_stream|record|record_stream)\(")
RUNS_MAX = 400


class PatchPart(NamedTuple):
    """One change of a file. at: its first line in the old file, from 1; lines: with their ` `, `-`
    or `+`
    """

    at: int
    lines: tuple[str, ...]

    @property
    def old(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] != "+"]

    @property
    def new(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] != "-"]

    @property
    def orders(self) -> bool:
        """Whether it adds something that waits, or that can be waited for."""
        return any(line[0] == "+" and _SYNCHRONIZES.search(line) for line in self.lines)


class SourcePatch(NamedTuple):
    """hunks: by the file that they change"""

    hunks: dict[str, tuple[PatchPart, ...]]

    def without(self, path: str, hunk: PatchPart) -> SourcePatch:
        """All but one hunk."""
        rest = tuple(one for one in self.hunks[path] if one is not hunk)
        kept = {**self.hunks, path: rest}
        return SourcePatch({name: found for name, found in kept.items() if found})


class LeftConflict(StrictStruct, frozen=True, kw_only=True):
    """A conflict that a patch leaves. edge: what is missing still; holds: the smallest ones under
    which it does harm, as text
    """

    signature: str
    buffer: str
    edge: str
    holds: tuple[str, ...] = ()


class PatchResult(StrictStruct, frozen=True, kw_only=True):
    """What a patch does to a program.

    argv: the script with its arguments; before, after: what is said of it without and with the
        patch; repairs: signatures of the conflicts that are gone
    leaves: conflicts that are still there; adds: signatures of new ones
    unneeded: changes without which it repairs as much
    host_waits, stream_waits: added lines where a thread of the host, or a stream, waits, with for
        how many operations
    operations: that its waits, and those of the program that come to cover more, have to wait for
        beyond what they did without it
    refused: why the changed program is not the one that was to be repaired; empty if it is
    """

    schema: str = "racegate.patch/1"
    argv: tuple[str, ...]
    before: str
    after: str
    repairs: tuple[str, ...]
    leaves: tuple[LeftConflict, ...] = ()
    adds: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()
    host_waits: tuple[str, ...] = ()
    stream_waits: tuple[str, ...] = ()
    operations: int = 0
    refused: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """0 it repairs everything and changes nothing else, 1 it does not."""
        is_whole = not (self.leaves or self.adds or self.refused)
        return ExitCode.CLEAN if is_whole else ExitCode.FINDING


def read_patch(text: str, *, source: str) -> SourcePatch:
    """A unified diff. Raises BadInput if it is none, or a file of it is not found: below this
    folder, or among the packages of this Python.
    """
    hunks: dict[str, list[PatchPart]] = {}
    path, lines = "", iter(text.splitlines())
    body: list[str] = []
    at = 0

    def end() -> None:
        if body:
            hunks.setdefault(path, []).append(PatchPart(at, tuple(body)))
            body.clear()

    for line in lines:
        found = _HUNK.match(line)
        if line.startswith("--- "):
            end()
            path = _found(line[4:].partition("\t")[0].strip(), source)
            next(lines, None)
        elif found is not None and path:
            end()
            at = int(found[1])
        elif at and path and (line[:1] in (" ", "+", "-") or not line):
            body.append(line or " ")
        elif not line.startswith("\\"):
            end()
            at = 0
    end()
    if not hunks:
        raise BadInput(f"{source}: no change of a file is in it: a unified diff is expected")
    return SourcePatch({path: tuple(found) for path, found in hunks.items()})


def _found(name: str, source: str) -> str:
    """The file of a name in a diff, with any of its first folders left out."""
    parts = Path(name).parts
    folders = [Path.cwd(), *(Path(folder) for folder in sys.path if folder)]
    for start in range(len(parts)):
        inside = Path(*parts[start:])
        for folder in folders:
            if (folder / inside).is_file() and not (inside.is_absolute() and start):
                return str(folder / inside)
    raise BadInput(f"{source}: {name} is neither below this folder nor a package's of this Python")


def patched(patch: SourcePatch, *, source: str) -> dict[str, str]:
    """The texts of all files with the patch, by path. Raises BadInput if a change does not fit."""
    texts = {}
    for path, hunks in patch.hunks.items():
        try:
            lines = read_text(Path(path), SOURCE_BYTES_MAX).splitlines()
        except ReadError as error:
            raise BadInput(f"{path} cannot be read: {error}") from None
        shift = 0
        for hunk in hunks:
            old = hunk.old
            at = _place_of(old, lines, hunk.at - 1 + shift)
            if at is None:
                raise BadInput(
                    f"{source}: the change at {from_here(path)}:{hunk.at} does not fit the file"
                )
            lines[at : at + len(old)] = hunk.new
            shift += len(hunk.new) - len(old)
        texts[path] = "\n".join(lines) + "\n"
    return texts


def _place_of(old: Sequence[str], lines: Sequence[str], near: int) -> int | None:
    """Where the old lines stand, nearest to where the diff has them."""
    found = [at for at in range(len(lines) + 1) if list(lines[at : at + len(old)]) == list(old)]
    return min(found, key=lambda at: abs(at - near), default=None)


def judge_patch(
    device: DeviceServer, program: Program, patch: SourcePatch, *, source: str, runs_max: int
) -> tuple[PatchResult, ProgramVerdict, Program]:
    """A program with a patch beside the program without: what is said, the verdict on the patched
    program, searched if conflicts are left, and that program. runs_max: of the search
    """
    trials = Trials(device, program, SourceFiles(), RUNS_MAX)
    trials.begin()
    base = trials.base
    if base.outcome.ending is not Ending.FINISHED:
        ended = base.outcome.message or base.outcome.ending
        raise BadInput(f"without the patch the program does not come to its end: {ended}")
    texts = patched(patch, source=source)
    changed = trials.repaired(texts)
    seen = trials.run(changed)
    verdict = judge_on(device, changed, explores=bool(seen.races), runs_max=runs_max, is_quiet=True)
    before, after = set(base.races), set(seen.races)
    waits = dict(_added_waits(patch, texts, seen))
    result = PatchResult(
        argv=program.argv,
        before=f"{len(before)} conflicts in {base.outcome.events} events",
        after=verdict_text(verdict.verdict, verdict.tried),
        repairs=tuple(sorted(before - after)),
        leaves=tuple(_left(verdict, race) for name, race in seen.races.items() if name in before),
        adds=tuple(sorted(after - before)),
        unneeded=tuple(_unneeded(trials, patch, seen, source)),
        host_waits=_told(waits, lambda total: total.host),
        stream_waits=_told(waits, lambda total: total.streams),
        operations=_price(trials.run(trials.repaired(_on_disk(patch))), seen, texts),
        refused=trials.refusal(msgspec.structs.replace(seen, outcome=_without_new(seen, base))),
    )
    return result, verdict, changed


def _without_new(seen: Seen, base: Seen) -> Outcome:
    """What new conflicts there are is told apart."""
    known = tuple(race for name, race in seen.races.items() if name in base.races)
    return msgspec.structs.replace(seen.outcome, findings=known)


def _left(verdict: ProgramVerdict, race: Race) -> LeftConflict:
    judged = {one.race.signature: one for one in verdict.judged}
    one = judged.get(race.signature)
    holds = () if one is None or one.landing is None else texts_of(one.landing.holds)
    edge = race.cause or race.edge
    return LeftConflict(signature=race.signature, buffer=race.buffer, edge=edge, holds=holds)


def _unneeded(trials: Trials, patch: SourcePatch, whole: Seen, source: str) -> Iterator[str]:
    """Changes that add an edge, and without which as much is repaired."""
    count = sum(len(hunks) for hunks in patch.hunks.values())
    for path, hunks in patch.hunks.items():
        for hunk in hunks if count > 1 else ():
            if not hunk.orders:
                continue
            less = trials.run(trials.repaired(patched(patch.without(path, hunk), source=source)))
            if not trials.refusal(less) and set(less.races) <= set(whole.races):
                yield f"{from_here(path)}:{hunk.at}"


def _on_disk(patch: SourcePatch) -> dict[str, str]:
    """The texts of its files as they are: waits are counted in runs with texts alone."""
    return {path: read_text(Path(path), SOURCE_BYTES_MAX) for path in patch.hunks}


def _price(without: Seen, seen: Seen, texts: dict[str, str]) -> int:
    """What waits cover that covered nothing or less without the patch, line by line."""
    before = {place: sum(total) for place, total in without.outcome.waits.items()}
    lines = {str(Path(path).resolve()): _lines_before(path, text) for path, text in texts.items()}
    more = 0
    for place, total in seen.outcome.waits.items():
        file, _, number = place.rpartition(":")
        known = lines.get(str(Path(file).resolve()))
        old = int(number) if known is None else known.get(int(number), 0)
        more += max(0, sum(total) - before.get(f"{file}:{old}", 0))
    return more


def _lines_before(path: str, text: str) -> dict[int, int]:
    """Of lines that a patch leaves, from 1: the number that each has on disk."""
    old = read_text(Path(path), SOURCE_BYTES_MAX).splitlines()
    blocks = SequenceMatcher(None, old, text.splitlines(), autojunk=False).get_matching_blocks()
    return {one.b + at + 1: one.a + at + 1 for one in blocks for at in range(one.size)}


def _added_waits(
    patch: SourcePatch, texts: dict[str, str], seen: Seen
) -> Iterator[tuple[str, WaitTotal]]:
    """The lines that a patch adds, by what is said of them, with what is waited for there."""
    for path, hunks in patch.hunks.items():
        added = {line[1:] for hunk in hunks for line in hunk.lines if line[0] == "+"}
        lines = texts[path].splitlines()
        for place, total in sorted(seen.outcome.waits.items()):
            file, _, number = place.rpartition(":")
            line = next(islice(lines, int(number) - 1, None), "")
            if Path(file).resolve() == Path(path).resolve() and line in added:
                yield f"{from_here(path)}:{number}: {line.strip()}", total


def _told(waits: Mapping[str, WaitTotal], of: Callable[[WaitTotal], int]) -> tuple[str, ...]:
    return tuple(f"{text} ({of(total)} operations)" for text, total in waits.items() if of(total))
