"""An engine behind an adapter beside its base: another adapter, under the same plans."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racegate.history.observe import Observation
from racegate.history.outcome import Comparison, RunResult
from racegate.interpose.outcome import Observation as SeenText
from racegate.jobs.foreign.beside import ComparedRun, compare
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterJudge

JudgesAgain = Callable[[], AdapterJudge]


def compare_adapters(base: JudgesAgain, change: JudgesAgain) -> tuple[RunResult, Comparison]:
    """One scenario on a change, and beside its base. base, change: a judge of the scenario each, a
    new one whenever it is asked for.

    Raises AdapterError if what the engines say cannot be believed, also where a value differs and
    two eager runs of one version do too.
    """
    old, new = compared_adapter(base()), compared_adapter(change())
    found = compare(old, new)
    if found.changed is not None:
        for before, again in ((old, base), (new, change)):
            if _seen_by(again()) != (before.seen, before.delivered):
                raise AdapterError(
                    f"{before.result.target}: two eager runs of {before.result.scenario} differ, "
                    "so that nothing can be said of a change: seed what is random"
                )
    return new.result, found


def compared_adapter(judge: AdapterJudge) -> ComparedRun:
    """A scenario on an engine, as it is compared."""
    result, eager = judge.judge(), judge.eager
    if eager.refused:
        return ComparedRun(result=result, ending=eager.ending, message=eager.refused)
    seen, delivered = _seen_by(judge)
    stopped = eager.history.stopped
    return ComparedRun(
        result=result,
        ending=eager.ending,
        message="" if stopped is None else str(stopped),
        seen=seen,
        delivered=delivered,
    )


def _seen_by(judge: AdapterJudge) -> tuple[tuple[SeenText, ...], dict[str, tuple[int, ...]]]:
    told = judge.eager.history
    delivered = {} if told.result is None else dict(told.result.delivered)
    return tuple(map(_as_text, told.observations)), delivered


def _as_text(one: Observation) -> SeenText:
    text = msgspec.json.encode(one.values).decode()
    return SeenText(f"step {one.step} {one.boundary}", text, text)
