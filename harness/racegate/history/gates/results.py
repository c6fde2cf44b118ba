"""A target over many scenarios, and what a gate of it ends with."""

from __future__ import annotations

from collections.abc import Sequence

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


class GatedResults(msgspec.Struct, frozen=True, kw_only=True):
    """A target over many scenarios.

    verdict: the one that decides the exit code
    results: one per scenario, also of those that the target does not run
    baseline: beside the findings that are known, null without such a file
    """

    schema: str
    verdict: Verdict
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

    def exit_code(self, benign: Benign = Benign.PASS) -> ExitCode:
        """What the gate ends with: beside a base, what differs from it decides, if anything ran.
        A target that was lost is BROKEN_HARNESS, unless something was found. What is known passes.

        benign: what BENIGN is where nothing was compared
        """
        known = self.baseline
        counted = [one if known is None else known.passed(one) for one in self.results]
        codes = [one.comparison.code for one in counted if one.comparison is not None]
        if not codes or not self.run:
            codes = [exit_code([result.verdict for result in counted], benign=benign)]
        if any(result.is_lost for result in counted):
            codes.append(ExitCode.BROKEN_HARNESS)
        code = next(code for code in _WORST_FIRST if code in codes)
        return code if known is None else ExitCode(known.code_of(code))


def gated(results: Sequence[RunResult], known: Ratchet | None = None) -> GatedResults:
    """The sum of what was judged, beside what is known. A scenario that the target does not run
    counts as the table of verdicts has it, which is never a pass, and so does nothing at all.
    """
    verdicts = [result.verdict for result in results]
    code = exit_code(verdicts)
    decisive = (verdict for verdict in verdicts if exit_code([verdict]) is code)
    return GatedResults(
        schema=SCHEMA,
        verdict=next(decisive, Verdict.INCONCLUSIVE),
        results=tuple(results),
        baseline=known,
    )
