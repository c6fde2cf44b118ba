"""Base beside change: the same plans on both, and what differs.

A changed observation is looked for in the recorded runs, in which nothing is held: what differs
there is no race. Conflicts are the same if their signatures are, which know functions and buffers
and no lines; one is worse than that of the base if its landings do more harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from racegate.history.finding import Finding, FindingKind, Race, Verdict
from racegate.history.outcome import Comparison, RunResult
from racegate.interpose.outcome import Ending, Observation
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.text import many
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.wire import ReleaseRun

# Of what landings do to a conflict, from harmless to harmful.
_HARM = (Verdict.BENIGN, Verdict.CONFLICT, Verdict.DIVERGENT)
_ROWS = "rows"  # the field of an observation that names the request of each row
_SHOWN_MAX = 60


class BaseScenario(StrictStruct, frozen=True, kw_only=True):
    """What is kept of a scenario on the base.

    result: what its judge said; inner, delivered, ending: of the run in which nothing was held
    """

    result: RunResult
    ending: Ending
    inner: tuple[Observation, ...]
    delivered: dict[str, tuple[int, ...]]


def base_scenario(judged: ReleaseVerdict, result: RunResult) -> BaseScenario:
    """What is kept of a scenario that was judged on the base."""
    run = judged.base
    return BaseScenario(result=result, ending=run.ending, inner=run.inner, delivered=run.delivered)


def compare(base: BaseScenario, run: ReleaseRun, result: RunResult) -> Comparison:
    """A scenario on a change beside the base. run: the change's, in which nothing was held"""
    title = base.result.target
    if base.result.refused and base.result.refused == result.refused:
        return Comparison(base=title)  # neither can run it
    for one, its in ((base.result, "base"), (result, "change")):
        if one.refused or one.is_lost:
            why = one.refused or one.message or "its run did not come to its end"
            return Comparison(base=title, unmet=(f"the {its} was not judged: {why}",))
    before, after = _races(base.result), _races(result)
    worse = [one for one in after if _is_worse(one, before)]
    return Comparison(
        base=title,
        changed=_changed(base, run),
        new=tuple(worse),
        repaired=tuple(one.signature for one in before if _is_worse(one, after)),
        known=len(after) - len(worse),
        unmet=tuple(text for text in result.unmet if text not in base.result.unmet),
    )


def _races(result: RunResult) -> list[Finding]:
    return [one for one in result.findings if one.race is not None]


def _is_worse(finding: Finding, others: Sequence[Finding]) -> bool:
    """Whether others have no such race, or only one whose landings do less harm."""
    same = [one for one in others if _race(one).signature == _race(finding).signature]
    return not same or _harm(finding) > max(map(_harm, same))


def _race(finding: Finding) -> Race:
    assert finding.race is not None
    return finding.race


def _harm(finding: Finding) -> int:
    """A race for which nobody searched is as one whose landings were not all tried."""
    return _HARM.index(finding.verdict or Verdict.CONFLICT)


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """Two values that are not the same. place: the boundary, and the field of it

    step, row, request: where it stands, as far as that is known; old: of the base; new: of the
        change; behind: what else is to be said, in words
    digest: of all that the change observes otherwise, so that another change is not taken for it
    """

    place: str
    step: int | None = None
    row: int | None = None
    request: str | None = None
    old: object = None
    new: object = None
    behind: str = ""
    digest: str = ""

    @property
    def finding(self) -> Finding:
        """As a finding, in words."""
        known = {"step": self.step, "request": self.request, "row": self.row}
        where = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
        values = f"{self.place} is {_short(self.new)}, in the base {_short(self.old)}"
        return Finding(
            kind=FindingKind.CHANGE,
            signature=f"change/{self.place}/{self.digest}",
            message=f"{where}: {values}{self.behind}" if where else f"{values}{self.behind}",
            step=self.step,
            request=self.request,
            field=self.place,
            expected=self.old,
            actual=self.new,
        )


def _changed(base: BaseScenario, run: ReleaseRun) -> Finding | None:
    """The first value that differs: at a boundary, else how the run ended, else what was delivered.

    A run that fails behind its last observation has delivered nothing.
    """
    differ = [pair for pair in zip_longest(base.inner, run.inner) if _is_other(*pair)]
    names = dict.fromkeys([*base.delivered, *run.delivered])
    tokens = [name for name in names if base.delivered.get(name) != run.delivered.get(name)]
    if differ:
        later = f"; {many(len(differ) - 1, 'later observation')} also" if differ[1:] else ""
        first = _difference(*differ[0], behind=f"; {run.message}{later}" if run.message else later)
    elif run.ending is not base.ending:
        behind = f"; {run.message}" if run.message else ""
        first = ValueChange(place="ending", old=base.ending, new=run.ending, behind=behind)
    elif tokens:
        old, new = (one.delivered.get(tokens[0]) for one in (base, run))
        first = ValueChange(place="delivered tokens", request=tokens[0], old=old, new=new)
    else:
        return None
    known = [(mine.name, mine.digest) if mine is not None else None for _, mine in differ]
    other = {name: run.delivered.get(name) for name in tokens}
    digest = hashlib.sha256(msgspec.json.encode((known, run.ending, other))).hexdigest()[:12]
    return msgspec.structs.replace(first, digest=digest).finding


def _is_other(its: Observation | None, mine: Observation | None) -> bool:
    return its is None or mine is None or (its.name, its.digest) != (mine.name, mine.digest)


def _difference(its: Observation | None, mine: Observation | None, *, behind: str) -> ValueChange:
    step, boundary = _place(its or mine)
    if its is None or mine is None or its.name != mine.name:
        old, new = (None if one is None else one.name for one in (its, mine))
        return ValueChange(place=boundary, step=step, old=old, new=new, behind=behind)
    before, after = _values(its), _values(mine)
    field = next(key for key in (*before, *after) if before.get(key) != after.get(key))
    found = _inside(before.get(field), after.get(field), before.get(_ROWS))
    place = f"{boundary}.{field}{found.place}"
    return msgspec.structs.replace(found, place=place, step=step, behind=behind)


def _values(one: Observation) -> dict[str, object]:
    return msgspec.json.decode(one.preview, type=dict[str, object])


def _place(one: Observation | None) -> tuple[int, str]:
    """The step and the boundary of an observation."""
    assert one is not None
    step, _, boundary = one.name.removeprefix("step ").partition(" ")
    return int(step), boundary


def _inside(old: object, new: object, rows: object) -> ValueChange:
    """The first entry in which two values of a field differ: of a list, or by request."""
    if isinstance(old, dict) and isinstance(new, dict):
        key = next(key for key in (*old, *new) if old.get(key) != new.get(key))
        return ValueChange(place="", request=str(key), old=old.get(key), new=new.get(key))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        at = next(index for index, value in enumerate(old) if value != new[index])
        if isinstance(rows, list) and len(rows) == len(old):
            return ValueChange(place="", row=at, request=str(rows[at]), old=old[at], new=new[at])
        return ValueChange(place=f"[{at}]", old=old[at], new=new[at])
    return ValueChange(place="", old=old, new=new)


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
