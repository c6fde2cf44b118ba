"""Resolution of options that exclude each other: with a warning, and visible in every result."""

from __future__ import annotations

import msgspec

from racegate.scenario.spec import DrafterKind, DraftSampling, Scenario


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The scenario both engines really run, and what was changed to get there."""

    scenario: Scenario
    warnings: tuple[str, ...]


def resolve(scenario: Scenario) -> Resolved:
    """The scenario with contradictory engine options settled, the stronger one winning."""
    engine = scenario.engine
    warnings: list[str] = []
    if engine.drafter is DrafterKind.NONE and engine.draft_len_max > 0:
        warnings.append(f"drafter none: draft_len_max {engine.draft_len_max} becomes 0")
        engine = msgspec.structs.replace(engine, draft_len_max=0)
    if engine.drafter is DrafterKind.EXTRACT_HIDDEN_STATES and engine.draft_len_max > 1:
        warnings.append(
            "drafter extract_hidden_states proposes one token: "
            f"draft_len_max {engine.draft_len_max} becomes 1"
        )
        engine = msgspec.structs.replace(engine, draft_len_max=1)
    if engine.draft_len_max == 0 and engine.drafter is not DrafterKind.NONE:
        warnings.append(f"draft_len_max 0: drafter {engine.drafter} becomes none")
        engine = msgspec.structs.replace(engine, drafter=DrafterKind.NONE)
    if engine.draws_drafts and engine.drafter is not DrafterKind.MTP:
        warnings.append(f"drafter {engine.drafter} draws nothing: draft_sampling becomes greedy")
        engine = msgspec.structs.replace(engine, draft_sampling=DraftSampling.GREEDY)
    resolved = msgspec.structs.replace(scenario, engine=engine)
    return Resolved(scenario=resolved, warnings=tuple(warnings))
