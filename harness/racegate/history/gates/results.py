"""A target over many scenarios, and what a gate of it ends with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict, exit_code
from racegate.history.gates.known import Ratchet, standing_in
from racegate.history.outcome import SCHEMA, RunResult

# What a gate may end with: what was found counts also where a target was lost.
_WORST_FIRST = (
    ExitCode.FINDING,
    ExitCode.BROKEN_HARNESS,
    ExitCode.INCONCLUSIVE,
    ExitCode.CLEAN,
)


class ComparedVerdict(StrEnum):
    """How a change compares with its base.

    SAME: nothing differs but what is accepted; STALE: as SAME, and something accepted is gone
    DIFFERENT: something is changed or new; INCONCLUSIVE: not all was exercised as in the base
    UNFINISHED: a side was lost before it had run everything, and nothing differs in the rest
    """

    SAME = "SAME"
    STALE = "STALE"
    DIFFERENT = "DIFFERENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    UNFINISHED = "UNFINISHED"


_COMPARED = {
    ExitCode.CLEAN: ComparedVerdict.SAME,
    ExitCode.BAD_INPUT: ComparedVerdict.STALE,
    ExitCode.FINDING: ComparedVerdict.DIFFERENT,
    ExitCode.INCONCLUSIVE: ComparedVerdict.INCONCLUSIVE,
    ExitCode.BROKEN_HARNESS: ComparedVerdict.UNFINISHED,
}


class GatedResults(msgspec.Struct, frozen=True, kw_only=True):
    """A target over many scenarios.

    verdict: the worst of the scenarios, each judged by itself: it decides the exit code where
        nothing was compared
    compared: how the change compares with its base, which decides then; null without a base
    exit_code: what the gate ends with
    results: one per scenario, also of those that the target does not run
    baseline: beside the findings that are known, null without such a file
    """

    schema: str
    verdict: Verdict
    compared: ComparedVerdict | None = None
    exit_code: int
    results: tuple[RunResult, ...]
    baseline: Ratchet | None = None

    @property
    def run(self) -> tuple[RunResult, ...]:
        """The results of the scenarios that the target runs."""
        return tuple(result for result in self.results if not result.refused)

    @property
    def standing(self) -> tuple[RunResult, ...]:
        """The results of the scenarios in which something is wrong that is not known."""
        return standing_in(self.run, self.baseline)

    @property
    def word(self) -> str:
        """How it ended, in a word: beside a base, how that compares."""
        return str(self.verdict if self.compared is None else self.compared)


def gated(
    results: Sequence[RunResult], known: Ratchet | None = None, benign: Benign = Benign.PASS
) -> GatedResults:
    """The sum of what was judged, beside what is known. A scenario that the target does not run
    counts as the table of verdicts has it, which is never a pass, and so does nothing at all.

    benign: what BENIGN is where nothing was compared
    """
    verdicts = [result.verdict for result in results]
    worst = exit_code(verdicts)
    decisive = (verdict for verdict in verdicts if exit_code([verdict]) is worst)
    code = _code_of(results, known, benign)
    is_compared = any(result.comparison for result in results if not result.refused)
    return GatedResults(
        schema=SCHEMA,
        verdict=next(decisive, Verdict.INCONCLUSIVE),
        compared=_COMPARED[code] if is_compared else None,
        exit_code=code,
        results=tuple(results),
        baseline=known,
    )


def _code_of(results: Sequence[RunResult], known: Ratchet | None, benign: Benign) -> ExitCode:
    """What the gate ends with: beside a base, what differs from it decides, if anything ran. A
    target that was lost is BROKEN_HARNESS, unless something was found. What is known passes.
    """
    counted = [one if known is None else known.passed(one) for one in results]
    codes = [one.comparison.code for one in counted if one.comparison is not None]
    if not codes or all(result.refused for result in results):
        codes = [exit_code([result.verdict for result in counted], benign=benign)]
    if any(result.is_lost for result in counted):
        codes.append(ExitCode.BROKEN_HARNESS)
    code = next(code for code in _WORST_FIRST if code in codes)
    return code if known is None else ExitCode(known.code_of(code))
