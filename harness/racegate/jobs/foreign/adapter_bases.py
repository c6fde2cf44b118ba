"""An engine behind an adapter beside its base: another adapter, under the same plans."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racegate.history.observe import Observation
from racegate.interpose.outcome import Observation as SeenText
from racegate.jobs.foreign.beside import ComparedRun, compare
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterJudge, AdapterLook

JudgesAgain = Callable[[], AdapterJudge]


def look_beside(base: JudgesAgain, change: JudgesAgain) -> AdapterLook:
    """One scenario on a change, and beside its base. base, change: a judge of the scenario each, a
    new one whenever it is asked for.

    Raises AdapterError if what the engines say cannot be believed, also where a value differs and
    two eager runs of one version do too.
    """
    look = change().look()
    old, new = compared_look(base().look()), compared_look(look)
    found = compare(old, new)
    if found.changed is not None:
        for before, again in ((old, base), (new, change)):
            after = compared_look(again().look())
            if (after.seen, after.delivered) != (before.seen, before.delivered):
                raise AdapterError(
                    f"{before.result.target}: two eager runs of {before.result.scenario} differ, "
                    "so that nothing can be said of a change: seed what is random"
                )
    return look._replace(result=msgspec.structs.replace(look.result, comparison=found))


def compared_look(look: AdapterLook) -> ComparedRun:
    """A scenario on an engine, as it is compared."""
    eager, told = look.base, look.base.told
    if told is None:
        return ComparedRun(result=look.result, ending=eager.ending, message=eager.refused)
    return ComparedRun(
        result=look.result,
        ending=eager.ending,
        message="" if told.stopped is None else str(told.stopped),
        seen=tuple(map(_as_text, told.observations)),
        delivered={} if told.result is None else dict(told.result.delivered),
    )


def _as_text(one: Observation) -> SeenText:
    text = msgspec.json.encode(one.values).decode()
    return SeenText(f"step {one.step} {one.boundary}", text, text)
