"""What is said of a program, as the result that every command prints."""

from __future__ import annotations

import msgspec

from racegate.history.finding import (
    Cause,
    Finding,
    FindingKind,
    KernelTotal,
    Race,
    causes_of,
    finding_of,
)
from racegate.history.gates.known import Ratchet
from racegate.history.outcome import RunResult
from racegate.history.stats import Stats
from racegate.interpose.outcome import DeviceKind, Ending, Observation
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.targets.common.verdict import finding_in, result_from
from racegate.targets.program.judge import ProgramRace, ProgramVerdict, Suppression
from racegate.targets.program.words import changes_of, replay_of


class ProgramResult(RunResult, frozen=True, kw_only=True):
    """A program judged: what all targets print, and what programs alone have. A finding that a run
    under holds shows has all that is observed without them and with them.

    ending: how the run that is told of ended; exit_code: the script's own
    observations: what the program marked in that run, in order
    expected: the same in the run without holds, where somebody named holds
    changes: what these, or other answers to completion queries, change
    causes: the missing edges of the findings; one may be that of several
    suppressed: findings that are let stand; stale: suppressions that matched nothing
    baseline: beside the findings that are known, null without such a file
    left: landings that the search did not try; limits: why what it did not show may be harmful
    is_complete: every landing was tried
    torch_version: of the program's torch; compiled_regions: graphs that torch.compile made of its
        code and that ran as compiled, 0 where all of it ran as plain Python
    ranks: as how many the program ran, 0 as one process; disagreements: what these did wrong
        together: each is a finding too, here with the stacks of all ranks
    kernels: the Triton kernels that it launched, looked at from inside
    """

    ending: Ending
    exit_code: int
    observations: tuple[Observation, ...]
    expected: tuple[Observation, ...] = ()
    changes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    suppressed: tuple[Suppression, ...] = ()
    stale: tuple[Suppression, ...] = ()
    baseline: Ratchet | None = None
    left: int = 0
    limits: tuple[str, ...] = ()
    is_complete: bool = False
    torch_version: str = ""
    compiled_regions: int = 0
    ranks: int = 0
    disagreements: tuple[RankFinding, ...] = ()
    kernels: tuple[KernelTotal, ...] = ()


def result_of_program(
    judged: ProgramVerdict, command: str, kind: DeviceKind = DeviceKind.VIRTUAL
) -> ProgramResult:
    """The result of a judged program. command: the script with its arguments"""
    shown, search = judged.shown, judged.search
    changes = judged.changes or judged.polls_matter
    return result_from(
        judged,
        ProgramResult,
        (*map(_of_ranks, judged.disagreements), *_changed(changes), *_findings(judged, command)),
        device=kind,
        scenario=command,
        target=f"a program on torch {shown.torch_version}",
        config={} if shown.gpu is None else {"gpu": msgspec.structs.asdict(shown.gpu)},
        stats=Stats(
            ops=shown.events,
            boundaries=len(shown.observations),
            conflicts=len(judged.races),
            schedules=judged.schedules,
        ),
        ending=shown.ending,
        exit_code=shown.exit_code,
        observations=shown.observations,
        expected=judged.base.observations if judged.holds else (),
        changes=changes,
        causes=causes_of(judged.races),
        suppressed=judged.suppressed,
        stale=judged.stale,
        left=0 if search is None else search.left,
        limits=() if search is None else search.limits,
        is_complete=search is not None and search.is_complete,
        torch_version=shown.torch_version,
        compiled_regions=shown.compiled_regions,
        ranks=shown.ranks,
        disagreements=shown.disagreements,
        kernels=shown.kernels,
    )


def _of_ranks(found: RankFinding) -> Finding:
    return Finding(kind=found.kind, signature=found.signature, message=found.message)


def _changed(changes: tuple[str, ...]) -> tuple[Finding, ...]:
    """What differs in a run, whatever races."""
    if not changes:
        return ()
    message = "these differ: " + ", ".join(changes)
    return (Finding(kind=FindingKind.DIVERGENCE, signature="changes", message=message),)


def _findings(judged: ProgramVerdict, command: str) -> list[Finding]:
    searched = {one.race.signature: one for one in judged.judged}
    return [_finding(race, searched.get(race.signature), command) for race in judged.races]


def _finding(race: Race, one: ProgramRace | None, command: str) -> Finding:
    if one is None:
        return finding_of(race)
    if one.landing is None:
        return finding_in(one, [], "")
    base, held = one.landing.base, one.landing.what
    changes = [line.strip() for line in changes_of(one.landing)]
    found = finding_in(one, changes, replay_of(one.landing, command))
    return msgspec.structs.replace(found, expected=base.observations, actual=held.observations)
