"""Origin: the revision that brought a finding. Its witness is replayed in a process of its own,
with the sources of each revision that is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.history.witness import Witness, save_first
from racegate.jobs.triage.bisect import Shows, bisected
from racegate.jobs.triage.checkout import Checkout, Revision, RevisionError

# Where a revision's sources are, from the root of the checkout.
SOURCES = ("harness", "reference", "kernels")
TIMES = 2
SHOWN = {ExitCode.FINDING: Shows.BAD, ExitCode.NOTHING_FOUND: Shows.GOOD}
WHY = {
    ExitCode.BAD_INPUT: "it cannot replay the witness",
    ExitCode.BROKEN_HARNESS: "its harness is not sound",
    ExitCode.INCONCLUSIVE: "a hold names nothing there",
    ExitCode.OTHER_SIGNATURE: "it shows another finding",
}


class OriginOutcome(StrEnum):
    """found: one revision brought it; range: one of several, of which some cannot be asked; flaky:
    two replays differ
    """

    FOUND = "found"
    RANGE = "range"
    FLAKY = "flaky"


CODES = {
    OriginOutcome.FOUND: ExitCode.FINDING,
    OriginOutcome.RANGE: ExitCode.INCONCLUSIVE,
    OriginOutcome.FLAKY: ExitCode.BROKEN_HARNESS,
}


class AskedRevision(msgspec.Struct, frozen=True, kw_only=True):
    """What one revision said.

    revision: which; shows: the finding or not; why: it cannot be said
    """

    revision: Revision
    shows: Shows
    why: str = ""


class OriginObject(msgspec.Struct, frozen=True, kw_only=True):
    """Which revision brought a finding.

    outcome: whether it is one; suspects: that one, or all that it may be, the oldest first
    good: the last revision that does not show it; revisions: between the two that were named
    asked: in their order
    """

    schema: str
    signature: str
    outcome: OriginOutcome
    good: Revision
    suspects: tuple[Revision, ...]
    revisions: int
    asked: tuple[AskedRevision, ...]

    @property
    def exit_code(self) -> ExitCode:
        """1: the finding is there, and its revision is named."""
        return CODES[self.outcome]


class _FlakyError(Exception):
    """Two replays of one revision differ."""


class _Asking:
    """Replays a witness in a worktree, revision by revision."""

    def __init__(
        self,
        checkout: Checkout,
        tree: Path,
        witness: Path,
        timeout_s: float,
        on_asked: Callable[[AskedRevision], None],
    ) -> None:
        self._checkout = checkout
        self._tree = tree
        self._witness = witness
        self._timeout_s = timeout_s
        self._on_asked = on_asked
        self.asked: list[AskedRevision] = []

    def ask(self, revision: Revision) -> AskedRevision:
        """One revision. Raises _FlakyError."""
        self._checkout.check_out(self._tree, revision)
        answer = self._tree.parent / "answer.json"
        answer.unlink(missing_ok=True)
        command = ("replay", str(self._witness), "--times", str(TIMES), "--json", str(answer))
        try:
            done = subprocess.run(
                (sys.executable, "-m", "racegate", *command),
                cwd=self._tree,
                env=_environment(self._tree),
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=self._timeout_s or None,
                check=False,
            )
        except subprocess.TimeoutExpired:
            shows, why = Shows.SKIPPED, f"no answer in {self._timeout_s:g} s"
        else:
            shows, why = _shown(done, _answer(answer))
        self.asked.append(AskedRevision(revision=revision, shows=shows, why=why))
        self._on_asked(self.asked[-1])
        if shows is not Shows.SKIPPED and _answer(answer).digests > 1:
            raise _FlakyError
        return self.asked[-1]


def _environment(tree: Path) -> dict[str, str]:
    """Of the sources there, and of nothing compiled from those that stood there before."""
    paths = os.pathsep.join(str(tree / each) for each in SOURCES)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def _shown(done: subprocess.CompletedProcess[bytes], answer: _Answer) -> tuple[Shows, str]:
    """Codes alone say nothing: a Python that cannot begin ends with 1 too. A hold that a wait of
    the engine breaks off is not realised: where it waits, the order cannot be turned round.
    """
    is_forced = bool(answer.last.holds) and all(hold.matched for hold in answer.last.holds)
    if done.returncode == ExitCode.INCONCLUSIVE and is_forced and answer.signature is None:
        return Shows.GOOD, ""
    if done.returncode in SHOWN and answer.digests:
        return SHOWN[ExitCode(done.returncode)], ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    why = f"it ended with {done.returncode}"
    with suppress(ValueError):
        why = WHY.get(ExitCode(done.returncode), why)
    return Shows.SKIPPED, f"{why}: {lines[-1]}" if lines else why


class _Hold(msgspec.Struct, frozen=True):
    matched: int = 0


class _Last(msgspec.Struct, frozen=True):
    holds: tuple[_Hold, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    """What a replay writes, as far as it is asked for, of whatever version."""

    digests: int = 0
    signature: str | None = None
    last: _Last = _Last()


def _answer(file: Path) -> _Answer:
    """Nothing, where nothing was written or it is not understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Answer)
    except (OSError, msgspec.MsgspecError):
        return _Answer()


def origin_of(
    witness: Witness,
    checkout: Checkout,
    *,
    good: str,
    bad: str,
    timeout_s: float,
    on_asked: Callable[[AskedRevision], None] = lambda asked: None,
) -> OriginObject:
    """Which revision between two brought a finding. timeout_s: for each, 0 is no limit

    Raises RevisionError, also if the first shows it or the second does not.
    """
    revisions = checkout.between(checkout.revision(good), checkout.revision(bad))
    with checkout.worktree() as tree:
        file = tree.parent / "finding.witness.json"
        save_first(witness, file)
        asking = _Asking(checkout, tree, file, timeout_s, on_asked)

        try:
            _check_ends(revisions, asking.ask)
            bounds = bisected(len(revisions) - 1, lambda place: asking.ask(revisions[place]).shows)
        except _FlakyError:
            return _origin(witness, OriginOutcome.FLAKY, revisions, asking.asked)
    suspects = revisions[bounds.good + 1 : bounds.bad + 1]
    outcome = OriginOutcome.FOUND if len(suspects) == 1 else OriginOutcome.RANGE
    return _origin(
        witness,
        outcome,
        revisions,
        asking.asked,
        good=revisions[bounds.good],
        suspects=tuple(suspects),
    )


def _check_ends(revisions: Sequence[Revision], ask: Callable[[Revision], AskedRevision]) -> None:
    """Raises RevisionError if the ends are not what they were said to be."""
    for revision, wanted in ((revisions[0], Shows.GOOD), (revisions[-1], Shows.BAD)):
        answer = ask(revision)
        if answer.shows is not wanted:
            why = f" ({answer.why})" if answer.why else ""
            raise RevisionError(
                f"{revision.short} was to be {wanted}, and is {answer.shows}{why}: name another"
            )


def _origin(
    witness: Witness,
    outcome: OriginOutcome,
    revisions: Sequence[Revision],
    asked: Sequence[AskedRevision],
    *,
    good: Revision | None = None,
    suspects: tuple[Revision, ...] = (),
) -> OriginObject:
    return OriginObject(
        schema=SCHEMA,
        signature=witness.signature,
        outcome=outcome,
        good=good or revisions[0],
        suspects=suspects or tuple(revisions[1:]),
        revisions=len(revisions) - 1,
        asked=tuple(asked),
    )
