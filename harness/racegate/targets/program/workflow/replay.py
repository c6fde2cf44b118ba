"""Replay of a program's witness: whether its hold still changes what the program observes."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from racegate.history.replayed import ReplayOutcome, ReplayRun, ReplaySummary, replayed
from racegate.history.schedule import parse_holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind, Ending, Observation, Outcome, Plan, changed
from racegate.targets.common.landings import LandingRuns
from racegate.targets.program.judge import ProgramTarget, settled
from racegate.targets.program.launch import DeviceServer
from racegate.targets.program.words import difference
from racegate.targets.program.workflow.witness import ProgramWitness, witness_of

_DEBUGGED_S = 30 * 86_400.0


class ProgramReplay(ReplaySummary, frozen=True, kw_only=True):
    """A program's witness run again: once without holds, then with them. Its signature is that of
    the recorded finding, if the program still has it.

    argv: the script with its arguments; torch_version: of this torch
    expected: observations without holds; actual: of the last run with them
    """

    argv: tuple[str, ...]
    expected: tuple[Observation, ...]
    actual: tuple[Observation, ...]
    torch_version: str


def replay_program(
    device: DeviceServer,
    witness: ProgramWitness,
    *,
    times: int,
    timeout_s: float = 0.0,
    debugger: str = "",
) -> ProgramReplay:
    """times: runs under the holds; timeout_s: for each run, 0 for none; debugger: as of `Plan`, of
    the runs under the holds. Raises BadInput: its script is not where it was, seen from this folder
    """
    program = witness.subject.checked(device.kind, timeout_s=timeout_s)
    base = device.run(program, Plan(polls=witness.polls), is_quiet=True)
    if device.kind is DeviceKind.CUDA and base.ending is Ending.FINISHED:
        base = settled(ProgramTarget(device, program), base, polls=witness.polls)
    plan = Plan(holds=parse_holds(witness.holds), polls=witness.polls, is_recording=False)
    if debugger:  # a person takes the time that it takes, and a program that waits for one hangs
        plan = msgspec.structs.replace(plan, debugger=debugger)
        program = replace(program, timeout_s=_DEBUGGED_S)
    has_finding = any(finding.signature == witness.signature for finding in base.findings)
    runs: list[ReplayRun] = []
    last = base
    for _ in range(times):
        if base.ending is Ending.FINISHED:
            last = device.run(program, plan, is_quiet=True)
        seen = (base.observations, last.observations)
        runs.append(
            ReplayRun(
                outcome=_outcome(witness, base, last),
                signature=witness.signature if has_finding else None,
                seen=last.observations,
                matches_record=seen == (witness.expected, witness.actual),
                message=last.message,
            )
        )
    return replayed(
        ProgramReplay,
        witness,
        "program",
        runs,
        argv=witness.argv,
        expected=base.observations,
        actual=last.observations,
        torch_version=base.torch_version,
    )


def smaller_program(
    device: DeviceServer, witness: ProgramWitness, *, runs_max: int
) -> tuple[ProgramWitness, int, bool]:
    """The witness with the fewest of its holds that show the finding now, how many runs that took,
    and whether none of these holds can be left out. Raises BadInput if it does not show.
    """
    program = witness.subject.checked(device.kind)
    target = ProgramTarget(device, program)
    base = target.run(Plan(polls=witness.polls))
    races = [race for race in base.findings if race.signature == witness.signature]
    runs = LandingRuns(target, {witness.polls: base}, runs_max=runs_max)
    whole = runs.under(parse_holds(witness.holds), witness.polls)
    if not (races and whole.is_harmful):
        raise BadInput(f"{witness.title}: its holds do not show the finding now")
    small = runs.smallest(whole)
    return witness_of(races[0], small, program), len(runs.made), small.is_smallest


def _outcome(witness: ProgramWitness, base: Outcome, held: Outcome) -> ReplayOutcome:
    """Held runs are compared with the present program, not with the bits of another machine."""
    if base.ending is not Ending.FINISHED or not held.is_decided:
        return ReplayOutcome.NOT_REALISED
    if not all(held.realised.values()):
        return ReplayOutcome.NOT_REALISED
    differs = changed(base.observations, held.observations)
    ends_otherwise = held.ending is not base.ending
    if not differs and not ends_otherwise:
        return ReplayOutcome.NOTHING
    as_recorded = differs & changed(witness.expected, witness.actual)
    is_same = bool(as_recorded) or (ends_otherwise and bool(witness.ending))
    has_finding = any(finding.signature == witness.signature for finding in base.findings)
    return ReplayOutcome.REPRODUCED if is_same and has_finding else ReplayOutcome.OTHER


def render_replay(replay: ProgramReplay) -> str:
    """What a person reads after a replay."""
    count = replay.outcomes.get(replay.outcome, 0)
    lines = [
        f"{replay.outcome} {count} of {replay.times}: [{replay.expected_signature}] "
        f"{replay.witness}",
        *(f"  hold    {hold}" for hold in replay.holds),
        *difference(replay.expected, replay.actual, "with the hold"),
    ]
    if replay.message:
        lines.append(f"  ended   {replay.message}")
    if replay.signature is None:
        lines.append("  no run without holds has this finding now")
    same = "as recorded" if replay.matches_record else f"other bits than recorded {_made(replay)}"
    return "\n".join([*lines, f"  bits    {same}"])


def _made(replay: ProgramReplay) -> str:
    made = ", ".join(f"{name} {number}" for name, number in replay.recorded_with.items())
    return f"(with {made}; this torch is {replay.torch_version})"
