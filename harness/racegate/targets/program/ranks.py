"""What the ranks of a program gave, as one outcome: each of its words says which rank it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from racegate.history.finding import FindingKind, Race, Side, place_name
from racegate.history.schedule import AccessPlace, Hold
from racegate.interpose.errors import ExitCode
from racegate.interpose.outcome import Ending, Observation, Outcome
from racegate.interpose.ranks.group.findings import RankFinding, RankPlace, rank_finding
from racegate.interpose.ranks.group.kinds import MAIN, rank_name
from racegate.interpose.ranks.holds import holds_of, of_rank
from racegate.interpose.ranks.outcome import RankEnding, RanksOutcome

LOST = "processes started by the program that were ended before they could say what they found"
# Of several ranks, the first of these that one of them has is how the program ended.
_WORST = (
    Ending.NOT_MODELLED,
    Ending.INTERRUPTED,
    Ending.LOST,
    Ending.FAILED,
    Ending.TIMED_OUT,
    Ending.FINISHED,
)


def merged(ran: RanksOutcome) -> Outcome:
    """All ranks as one program."""
    all_ends = {end.rank: _outcome(end) for end in ran.ranks}
    rank, told = _deciding(all_ends)
    message = of_rank(told.message, rank) if told.message and rank == MAIN else told.message
    if message and rank != MAIN:
        message = f"{rank_name(rank)}: {message}"
    ending, exit_code, first = told.ending, told.exit_code, told
    ends = list(all_ends.values())
    if ran.is_stopped and ran.findings and ending is not Ending.NOT_MODELLED:
        ending, exit_code, message = Ending.STUCK, ExitCode.FINDING, ran.findings[0].title
    elif ran.is_hanging:
        ending, exit_code = Ending.TIMED_OUT, ExitCode.BROKEN_HARNESS
        message = "the program hangs: all ranks stand still, and nobody sees why" + stood_text(ran)
    return Outcome(
        ending=ending,
        exit_code=exit_code,
        message=message,
        work=sum(end.work or 0 for end in ends),
        work_of_children=sum(end.work_of_children for end in ends),
        events=sum(end.events for end in ends),
        findings=_findings(ran, all_ends),
        disagreements=(*_disagreed(all_ends), *ran.findings),
        observations=tuple(one for at, end in all_ends.items() for one in _observed(at, end)),
        not_seen=_sum([*(end.not_seen for end in ends), {LOST: ran.lost} if ran.lost else {}]),
        positions=_positions(all_ends),
        realised=_realised(ran.holds, all_ends),
        torch_version=first.torch_version,
        gpu=first.gpu,
        compiled_regions=sum(end.compiled_regions for end in ends),
        ranks=sum(rank >= 0 for rank in all_ends),
    )


def _deciding(ends: Mapping[int, Outcome]) -> tuple[int, Outcome]:
    """Whose ending is the program's: the worst of its ranks, or where it starts them itself its own
    process, unless another asked for what nobody models.
    """
    refused = [pair for pair in ends.items() if pair[1].ending is Ending.NOT_MODELLED]
    if MAIN in ends:
        return (*refused, (MAIN, ends[MAIN]))[0]
    return min(ends.items(), key=lambda pair: _WORST.index(pair[1].ending))


def stood_text(ran: RanksOutcome) -> str:
    """Where the ranks stood when they were stopped, a line for each thread."""
    return "".join(
        f"\n  {rank_name(end.rank)} stood at {place_name(stack)}"
        for end in ran.ranks
        for stack in end.stood
        if stack
    )


def _outcome(end: RankEnding) -> Outcome:
    """What a rank wrote, or how its process ended without."""
    outcome = msgspec.json.decode(end.outcome, type=Outcome | None)
    if outcome is not None:
        return outcome
    how = f"with exit code {end.code}" if end.code >= 0 else f"by signal {-end.code}"
    if end.code == ExitCode.NOT_MODELLED:
        text = "the virtual CUDA runtime ended the run (its message is above)"
        return Outcome(ending=Ending.NOT_MODELLED, exit_code=end.code, message=text)
    text = f"the process ended {how} before its script was over"
    return Outcome(ending=Ending.LOST, exit_code=end.code, message=text)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _realised(holds: Sequence[Hold], ends: Mapping[int, Outcome]) -> dict[str, int]:
    """By hold, as it was given, how many operations of its rank, or of all, it kept back."""
    return {
        hold.text(): sum(
            end.realised.get(own.text(), 0)
            for rank, end in ends.items()
            for own in holds_of(rank, (hold,))
        )
        for hold in holds
    }


def _disagreed(ends: Mapping[int, Outcome]) -> tuple[RankFinding, ...]:
    """The first value that all ranks were to have and have not, as far as all of them came."""
    agreed = {
        rank: [one for one in end.observations if one.is_agreed]
        for rank, end in ends.items()
        if rank >= 0
    }
    for number, values in enumerate(zip(*agreed.values(), strict=False), 1):
        if len({(value.name, value.digest) for value in values}) > 1:
            title = f"value {number} that all ranks are to agree on, {values[0].name}, differs"
            places = [
                RankPlace(rank=rank, what=f"has {value.name} = {value.preview}")
                for rank, value in zip(agreed, values, strict=True)
            ]
            return (rank_finding(FindingKind.DIVERGENCE, title, places, about=values[0].name),)
    return ()


def _observed(rank: int, end: Outcome) -> Iterable[Observation]:
    for one in end.observations:
        yield msgspec.structs.replace(one, name=of_rank(one.name, rank))


def _positions(ends: Mapping[int, Outcome]) -> dict[str, AccessPlace]:
    """A lane of one rank is none of another."""
    return {
        of_rank(label, rank): AccessPlace(place.lane * len(ends) + number, place.at)
        for number, (rank, end) in enumerate(ends.items())
        for label, place in end.positions.items()
    }


# ---- findings


def _findings(ran: RanksOutcome, ends: Mapping[int, Outcome]) -> tuple[Race, ...]:
    """Those of all ranks; one of several ranks is one finding, with all its pairs."""
    found: dict[str, Race] = {}
    for told, (rank, end) in zip(ran.ranks, ends.items(), strict=True):
        ordered = frozenset(told.ordered)
        for race in end.findings:
            left = tuple(pair for pair in race.pairs if pair not in ordered)
            if left:
                mine = _of_rank(msgspec.structs.replace(race, pairs=left, count=len(left)), rank)
                known = found.get(race.signature)
                found[race.signature] = mine if known is None else _both(known, mine)
    return tuple(found.values())


def _both(known: Race, more: Race) -> Race:
    return msgspec.structs.replace(
        known, count=known.count + more.count, pairs=known.pairs + more.pairs
    )


def _of_rank(race: Race, rank: int) -> Race:
    return msgspec.structs.replace(
        race,
        first=_side(race.first, rank),
        second=_side(race.second, rank),
        pairs=tuple((of_rank(one, rank), of_rank(other, rank)) for one, other in race.pairs),
    )


def _side(side: Side, rank: int) -> Side:
    return msgspec.structs.replace(
        side, label=of_rank(side.label, rank), lane=of_rank(side.lane, rank)
    )
