"""What a replay of a witness came to, whatever its subject: one outcome and one form for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import signature_of
from racegate.history.outcome import SCHEMA, RunResult
from racegate.history.witness import SealedWitness
from racegate.scenario.config import OptionChange


class ReplayOutcome(StrEnum):
    """What a replay showed.

    REPRODUCED: the recorded signature
    OTHER: another signature
    NOTHING: no finding
    NOT_REALISED: a hold could not be kept, so nothing can be said
    """

    REPRODUCED = "reproduced"
    OTHER = "other signature"
    NOTHING = "nothing found"
    NOT_REALISED = "not realised"


EXIT_CODES = {
    ReplayOutcome.REPRODUCED: ExitCode.FINDING,
    ReplayOutcome.NOT_REALISED: ExitCode.INCONCLUSIVE,
    ReplayOutcome.OTHER: ExitCode.OTHER_SIGNATURE,
    ReplayOutcome.NOTHING: ExitCode.NOTHING_FOUND,
}


def worst_of(outcomes: Iterable[ReplayOutcome]) -> ReplayOutcome:
    """The one to report of several."""
    order = (
        ReplayOutcome.NOT_REALISED,
        ReplayOutcome.NOTHING,
        ReplayOutcome.OTHER,
        ReplayOutcome.REPRODUCED,
    )
    return min(outcomes, key=order.index)


class ReplaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A witness run again, whatever it is a witness of.

    file: name of the witness file, empty of one that was not read from a file; witness: its title
    subject: engine, program, vllm, sglang or adapter; fault: the seeded fault of our own engine
    holds: as text; outcome: the worst of all replays; outcomes: how often each; times: replays made
    expected_signature: the recorded one; signature: what the last replay had, null if nothing
    digests: different runs seen; matches_record: what was seen is what was recorded
    message: how a run ended that did not come to its end
    recorded_with: versions of what the witness was recorded with
    resolved: options of its script that gave way to others
    """

    schema: str = SCHEMA
    file: str = ""
    witness: str
    subject: str = "engine"
    fault: str | None = None
    holds: tuple[str, ...]
    outcome: ReplayOutcome
    expected_signature: str
    signature: str | None
    times: int
    outcomes: dict[str, int]
    digests: int
    matches_record: bool
    message: str = ""
    recorded_with: dict[str, str]
    resolved: tuple[OptionChange, ...] = ()


class Replay(ReplaySummary, frozen=True, kw_only=True):
    """A witness run again whose subject gives a result. last: of the last run"""

    last: RunResult


Made = TypeVar("Made", bound=ReplaySummary)


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """Several witnesses run again. replays: in the order of the files, without their last runs"""

    schema: str = SCHEMA
    environment: dict[str, str]
    replays: tuple[ReplaySummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One run of a witness, as far as it is counted.

    seen: what two runs are the same by; matches_record: it is what was recorded
    """

    outcome: ReplayOutcome
    signature: str | None
    seen: Hashable
    matches_record: bool
    message: str = ""


def replayed(
    make: Callable[..., Made],
    witness: SealedWitness,
    subject: str,
    runs: Sequence[ReplayRun],
    **more: object,
) -> Made:
    """The summary of the runs that were made, of which there is at least one. make: the kind of
    summary; more: what that has beside the fields of all
    """
    outcomes = Counter(run.outcome for run in runs)
    return make(
        witness=witness.title,
        subject=subject,
        holds=witness.holds,
        outcome=worst_of(outcomes),
        expected_signature=witness.signature,
        signature=runs[-1].signature,
        times=len(runs),
        outcomes={str(outcome): count for outcome, count in outcomes.items()},
        digests=len({run.seen for run in runs}),
        matches_record=all(run.matches_record for run in runs),
        message=runs[-1].message,
        recorded_with=witness.versions,
        **more,
    )


def shown_by(result: RunResult, command: str) -> RunResult:
    """The result, whose findings are shown again by this command."""
    findings = [msgspec.structs.replace(finding, replay=command) for finding in result.findings]
    return msgspec.structs.replace(result, findings=tuple(findings))


def without_last_run(replay: ReplaySummary) -> ReplaySummary:
    """What stands among several."""
    return ReplaySummary(
        **{name: getattr(replay, name) for name in ReplaySummary.__struct_fields__}
    )


def outcome_of_run(result: RunResult, expected: str) -> ReplayOutcome:
    """What a judged run under the holds of a witness shows. expected: the recorded signature"""
    if any(not hold.realised for hold in result.holds):
        return ReplayOutcome.NOT_REALISED
    signature = signature_of(result.findings)
    if signature is None:
        return ReplayOutcome.NOTHING
    return ReplayOutcome.REPRODUCED if signature == expected else ReplayOutcome.OTHER
