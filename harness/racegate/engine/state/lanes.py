"""The streams an engine works with."""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.settings import CacheMode, Layout, Planning, TransferMode
from racegate.scenario.spec import OwnScenario


class Lane(StrEnum):
    """compute: preparation copies, kernels, drafter; output: tokens to the host; counts: valid
    counts to a host that keeps rows; plan: positions and slots; load, save: prefixes from and to
    the store, copier: both, one after the other; drafts: drafts to the host, for grammar masks.
    """

    COMPUTE = "compute"
    COUNTS = "counts"
    OUTPUT = "output"
    PLAN = "plan"
    LOAD = "load"
    SAVE = "save"
    COPIER = "copier"
    DRAFTS = "drafts"


def lanes_of(scenario: OwnScenario) -> tuple[str, ...]:
    """The streams of all ranks, each with its rank where there are several."""
    lanes, ranks = lanes_of_rank(scenario), scenario.engine.ranks
    if ranks == 1:
        return lanes
    return tuple(f"{lane}.rank{rank}" for rank in range(ranks) for lane in lanes)


def lanes_of_rank(scenario: OwnScenario) -> tuple[str, ...]:
    """Those of every engine, and those that a configuration and its requests need."""
    lanes = [Lane.COMPUTE, Lane.OUTPUT]
    if scenario.engine.layout is Layout.ROWS:
        lanes.insert(1, Lane.COUNTS)
    if scenario.engine.planning is Planning.SIDE_STREAM:
        lanes.append(Lane.PLAN)
    if scenario.engine.cache_mode is CacheMode.OFFLOAD:
        is_thread = scenario.engine.transfers is TransferMode.THREAD
        lanes += [Lane.COPIER] if is_thread else [Lane.LOAD, Lane.SAVE]
    if any(request.grammar_modulus for request in scenario.requests):
        lanes.append(Lane.DRAFTS)
    return tuple(lane.value for lane in lanes)
