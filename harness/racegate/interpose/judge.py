"""What is run to judge a program, and what all of it says together."""

from __future__ import annotations

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.explore import POLLS, QUERIES, Search, Verdict, search
from racegate.interpose.launch import Device, Program, open_device
from racegate.interpose.outcome import Ending, Outcome, Plan


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """outcome: of the recorded run, with the findings of all; search: what exploring added."""

    outcome: Outcome
    search: Search | None = None

    @property
    def has_finding(self) -> bool:
        """A conflict that is not known to be benign."""
        benign = (
            {j.signature for j in self.search.judged if j.verdict is Verdict.BENIGN}
            if (self.search)
            else set()
        )
        return any(finding.signature not in benign for finding in self.outcome.findings)


def judge(program: Program, *, explores: bool, runs_max: int) -> Verdicts:
    """Judges a program on a device of its own."""
    with open_device() as device:
        return judge_on(device, program, explores=explores, runs_max=runs_max)


def judge_on(
    device: Device, program: Program, *, explores: bool, runs_max: int, is_quiet: bool = False
) -> Verdicts:
    """One recorded run; a second with other answers if the program polls; the search if asked."""
    outcome = device.run(program, Plan(), is_quiet=is_quiet)
    if outcome.ending is Ending.FINISHED and QUERIES in outcome.not_seen:
        outcome = _with_other_answers(device, program, outcome)
    if not explores or not outcome.findings or outcome.ending is not Ending.FINISHED:
        return Verdicts(outcome=outcome)
    found = search(device, program, outcome, runs_max=runs_max)
    return Verdicts(outcome=outcome, search=found)


def replay(program: Program, holds: tuple[str, ...]) -> Verdicts:
    """One run under holds, written `OPERATION until ACCESS` or `OPERATION` alone."""
    pairs = []
    for text in holds:
        operation, _, until = text.partition(" until ")
        if not operation:
            raise BadInput(f"a hold reads `OPERATION until ACCESS`, not {text!r}")
        pairs.append((operation, until or "forced"))
    with open_device() as device:
        return Verdicts(outcome=device.run(program, Plan(holds=tuple(pairs), is_recording=False)))


def _with_other_answers(device: Device, program: Program, outcome: Outcome) -> Outcome:
    other = device.run(program, Plan(polls=POLLS), is_quiet=True)
    known = {finding.signature for finding in outcome.findings}
    new = tuple(finding for finding in other.findings if finding.signature not in known)
    return msgspec.structs.replace(outcome, findings=(*outcome.findings, *new))
