"""What is observed of speculation: what the drafter is given, its drafts, and how many of them the
model accepts.
"""

from __future__ import annotations

from typing import Any

from racegate.targets.sglang.inside.truth import ACCEPTED, VERIFIED
from racegate.targets.sglang.inside.watch import GIVEN, SchedulerWatch


def drafter_of(scheduler: Any) -> Any:
    """The drafter's model runner, None if nothing is drafted."""
    worker = getattr(scheduler, "draft_worker", None)
    return getattr(getattr(worker, "draft_worker", None), "draft_runner", None)


def watch_drafts(watch: SchedulerWatch, scheduler: Any, drafter: Any) -> None:
    """Each pass of the drafter, and what is verified of it."""
    forward = drafter.forward

    def drafted(batch: Any, *args: Any, **kwargs: Any) -> Any:
        given = {name: getattr(batch, name, None) for name in GIVEN}
        watch.inner_on_device("drafter", {k: one for k, one in given.items() if one is not None})
        return forward(batch, *args, **kwargs)

    drafter.forward = drafted
    worker = scheduler.draft_worker
    verify = worker.verify

    def verified(batch: Any, *args: Any, **kwargs: Any) -> Any:
        drafts = batch.spec_info.draft_token
        result = verify(batch, *args, **kwargs)
        watch.on_device(VERIFIED, {"drafts": drafts, ACCEPTED: result.accept_lens})
        return result

    worker.verify = verified
