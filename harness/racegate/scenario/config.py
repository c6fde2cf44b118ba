"""Options that exclude each other are resolved here, once and in front of both engines.

Each option that gives way leaves a warning, which is part of every result
(docs/decisions/08-options.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from racegate.scenario.settings import (
    CacheMode,
    Cascade,
    DrafterKind,
    DraftSampling,
    EngineSpec,
    LayerKind,
    TransferMode,
)
from racegate.scenario.spec import OwnScenario
from racegate.scenario.strict import StrictStruct


class OptionChange(StrictStruct, frozen=True, kw_only=True):
    """An option that gave way. option: of the engine; asked: what the script says
    effective: what was run; because: of what, in words
    """

    option: str
    asked: str
    effective: str
    because: str

    @property
    def text(self) -> str:
        """The warning."""
        return f"{self.because}: {self.option} {self.asked} becomes {self.effective}"


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The scenario both engines really run, and what was changed to get there."""

    scenario: OwnScenario
    changes: tuple[OptionChange, ...]


class _Ruling(NamedTuple):
    option: str
    value: object
    because: str


def resolve(scenario: OwnScenario) -> Resolved:
    """The scenario with contradictory engine options settled, the stronger one winning."""
    changes = []
    for rule in _RULES:
        ruling = rule(scenario)
        if ruling is None:
            continue
        option, value, because = ruling
        asked = getattr(scenario.engine, option)
        changes.append(
            OptionChange(option=option, asked=str(asked), effective=str(value), because=because)
        )
        engine = msgspec.structs.replace(scenario.engine, **{option: value})
        scenario = msgspec.structs.replace(scenario, engine=engine)
    return Resolved(scenario=scenario, changes=tuple(changes))


def _no_drafter(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.drafter is not DrafterKind.NONE or engine.draft_len_max == 0:
        return None
    return _Ruling("draft_len_max", 0, "drafter none")


def _one_draft(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.drafter is not DrafterKind.EXTRACT_HIDDEN_STATES or engine.draft_len_max <= 1:
        return None
    return _Ruling("draft_len_max", 1, "drafter extract_hidden_states proposes one token")


def _no_drafts(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.draft_len_max > 0 or engine.drafter is DrafterKind.NONE:
        return None
    return _Ruling("drafter", DrafterKind.NONE, "draft_len_max 0")


def _draws_nothing(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if not engine.draws_drafts or engine.drafter is DrafterKind.MTP:
        return None
    return _Ruling(
        "draft_sampling", DraftSampling.GREEDY, f"drafter {engine.drafter} draws nothing"
    )


def _unknown_lengths(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if not engine.has_cascade or engine.depth == 1 or engine.draft_len_max == 0:
        return None
    because = "with drafts in flight the host does not know how long rows are"
    return _Ruling("cascade", Cascade.OFF, because)


def _nothing_attends(scenario: OwnScenario) -> _Ruling | None:
    if not scenario.engine.has_cascade or LayerKind.ATTENTION in scenario.model.layers:
        return None
    return _Ruling("cascade", Cascade.OFF, "no layer attends")


def _stays(engine: EngineSpec) -> str:
    return f"cache mode {engine.cache_mode} leaves prefixes where they are"


def _nothing_leaves(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.cache_mode is CacheMode.OFFLOAD or engine.transfers is TransferMode.STREAMS:
        return None
    return _Ruling("transfers", TransferMode.STREAMS, _stays(engine))


def _nothing_is_held(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.cache_mode is CacheMode.OFFLOAD or engine.prefixes_max is None:
        return None
    return _Ruling("prefixes_max", None, _stays(engine))


def _nobody_tells(scenario: OwnScenario) -> _Ruling | None:
    engine = scenario.engine
    if engine.transfers is not TransferMode.STREAMS or not engine.failing_loads:
        return None
    return _Ruling("failing_loads", (), "the host does not hear of loads on streams")


# In this order: what one settles, the next ones find settled.
_RULES: tuple[Callable[[OwnScenario], _Ruling | None], ...] = (
    _no_drafter,
    _one_draft,
    _no_drafts,
    _draws_nothing,
    _unknown_lengths,
    _nothing_attends,
    _nothing_leaves,
    _nothing_is_held,
    _nobody_tells,
)
