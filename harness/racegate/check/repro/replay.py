"""Replay: runs a witness again and says whether it shows what it was recorded for."""

from __future__ import annotations

from collections import Counter

import msgspec

from racegate.check.checker import Checkers
from racegate.check.findings import digest_of
from racegate.device.cuda.site import CudaSite
from racegate.faults.catalogue import find_fault
from racegate.history.finding import signature_of
from racegate.history.outcome import SCHEMA, RunResult
from racegate.history.replayed import ReplayOutcome, worst_of
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness
from racegate.scenario.config import OptionChange


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A witness run again.

    witness: its title; outcome: the worst of all replays; outcomes: how often each
    times: replays made; digests: different runs seen, bit for bit
    matches_record: the bits are those of the recorded run
    recorded_with: versions of what the witness was recorded with; last: the last run
    """

    schema: str
    witness: str
    fault: str | None
    holds: tuple[str, ...]
    outcome: ReplayOutcome
    expected_signature: str
    signature: str | None
    times: int
    outcomes: dict[str, int]
    digests: int
    matches_record: bool
    recorded_with: dict[str, str]
    last: RunResult


class ReplayOfFile(msgspec.Struct, frozen=True, kw_only=True):
    """One of several witnesses: its file's name, and the fields of a replay without the last run.

    file: name of the witness file; witness: its title
    outcome: the worst of all replays; outcomes: how often each; times: replays made
    digests: different runs seen, bit for bit; matches_record: the bits are those of the recorded
        run
    recorded_with: versions of what the witness was recorded with
    resolved: options of its script that gave way to others
    """

    file: str
    schema: str
    witness: str
    fault: str | None
    holds: tuple[str, ...]
    outcome: ReplayOutcome
    expected_signature: str
    signature: str | None
    times: int
    outcomes: dict[str, int]
    digests: int
    matches_record: bool
    recorded_with: dict[str, str]
    resolved: tuple[OptionChange, ...] = ()

    @classmethod
    def of(cls, file: str, found: Replay) -> ReplayOfFile:
        """A replay without its last run."""
        fields = {name: getattr(found, name) for name in Replay.__struct_fields__ if name != "last"}
        return cls(file=file, **fields, resolved=found.last.resolved)


class ReplaysObject(msgspec.Struct, frozen=True, kw_only=True):
    """Several witnesses replayed. replays: in the order of the files"""

    schema: str
    environment: dict[str, str]
    replays: tuple[ReplayOfFile, ...]


def replay(
    witness: Witness,
    *,
    times: int,
    command: str,
    cuda: CudaSite | None = None,
    checkers: Checkers | None = None,
) -> Replay:
    """Replays a witness. The worst outcome of all replays is the outcome. cuda: on this GPU

    checkers: of whoever replays many witnesses
    """
    fault = None if witness.fault is None else find_fault(witness.fault)
    schedule = parse_schedule(list(witness.holds))
    checkers = Checkers() if checkers is None else checkers
    checker = checkers.of(witness.scenario, replay=command, cuda=cuda)
    seen: Counter[ReplayOutcome] = Counter()
    digests: Counter[str] = Counter()
    last: RunResult | None = None
    for _ in range(times):
        run = checker.execute(schedule=schedule, fault=fault)
        last = checker.judge(run, schedule=schedule, fault=fault)
        findings = [msgspec.structs.replace(finding, replay=command) for finding in last.findings]
        last = msgspec.structs.replace(last, findings=tuple(findings))
        digests[digest_of(run, last.findings)] += 1
        seen[_outcome(last, witness)] += 1
    assert last is not None, "at least one replay"
    return Replay(
        schema=SCHEMA,
        witness=witness.title,
        fault=witness.fault,
        holds=witness.holds,
        outcome=worst_of(seen),
        expected_signature=witness.signature,
        signature=signature_of(last.findings),
        times=times,
        outcomes={str(outcome): count for outcome, count in seen.items()},
        digests=len(digests),
        matches_record=set(digests) == {witness.digest},
        recorded_with=witness.versions,
        last=last,
    )


def _outcome(result: RunResult, witness: Witness) -> ReplayOutcome:
    if any(not hold.realised for hold in result.holds):
        return ReplayOutcome.NOT_REALISED
    signature = signature_of(result.findings)
    if signature is None:
        return ReplayOutcome.NOTHING
    return ReplayOutcome.REPRODUCED if signature == witness.signature else ReplayOutcome.OTHER
