"""Puts a runner together from what every inner room gives, in the order in which its memory is
taken from the device. The layout of the batch is chosen here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from racegate.device.protocol import Device
from racegate.engine.cache.fresh_blocks import BlockZeroing
from racegate.engine.cache.pools import pools_of
from racegate.engine.cache.store import NoStore, PrefixStore
from racegate.engine.decode.draft_weights import DraftWeights
from racegate.engine.decode.drafters import make_drafter
from racegate.engine.decode.grammar import GrammarMasks, NoGrammarMasks
from racegate.engine.decode.sampling import Sampling
from racegate.engine.model.bound import BoundBuffers
from racegate.engine.model.graphs import ForwardPass
from racegate.engine.model.model import Model
from racegate.engine.model.peers import Peers
from racegate.engine.observe.probe import Probe, ProbedMemory
from racegate.engine.parts import EngineParts
from racegate.engine.rows import stages
from racegate.engine.rows.layout import RowLayout
from racegate.engine.rows.runner import Runner
from racegate.engine.slots.layout import SlotLayout
from racegate.engine.state.counters import Counters
from racegate.engine.state.setup import Setup, make_setup
from racegate.scenario.settings import CacheMode, Layout, Zeroing
from racegate.scenario.spec import OwnScenario


def no_peers(setup: Setup) -> Peers:
    """Of a model that is whole."""
    return Peers()


class Site(NamedTuple):
    """Where a runner is put together. peers: makes the other ranks as this one sees them"""

    scenario: OwnScenario
    device: Device
    counters: Counters
    peers: Callable[[Setup], Peers] = no_peers


def make_runner(
    site: Site,
    parts: EngineParts,
    *,
    truth: Mapping[str, tuple[int, ...]],
    probe: Probe,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Runner:
    """A runner of these parts. truth: the true tokens of each request, for the scripted drafter;
    weights: of the model, by name, drawn from its seed by default.
    """
    layout, engine = _layout(site, parts), site.scenario.engine
    setup = layout.setup
    inputs, work = setup.inputs, setup.work
    prefix = parts.model.common_prefix(setup)
    model = Model(setup, prefix, peers=site.peers(setup), weights=weights)
    made = make_drafter(setup, model, parts.decode, truth=truth)
    drafter = parts.decode.drafter(setup, made)
    prep = layout.prep()
    sampling = Sampling(setup, parts.decode)
    count_path = layout.count_path()
    columns = layout.columns(model)
    pools = pools_of(model, drafter.cache)
    fresh = layout.zeroing(pools) if engine.zeroing is Zeroing.FRESH else BlockZeroing()
    store: PrefixStore | NoStore = NoStore()
    if engine.cache_mode is CacheMode.OFFLOAD:
        store = PrefixStore(setup, pools, parts.cache.carrier(setup))
    grammar_masks = _grammar_masks(setup, parts)
    draft_weights = layout.draft_weights() if engine.draws_drafts else DraftWeights()
    laid_out = layout.laid_out(count_path, draft_weights)
    bound = BoundBuffers(inputs=inputs, work=work, window_table=columns.window_table.gpu)
    through = stages.Stages(
        batch=laid_out.batch,
        guard=laid_out.guard,
        correction=laid_out.correction,
        carry=laid_out.carry,
        count_path=count_path,
        columns=columns,
        prefix=prefix,
        fresh=fresh,
        store=store,
        prep=prep,
        forward=ForwardPass(setup, model=model, bound=bound, parts=parts.model),
        model=model,
        sampling=sampling,
        grammar_masks=grammar_masks,
        draft_weights=draft_weights,
        drafter=drafter,
    )
    probe.attach(
        ProbedMemory(
            inputs=inputs,
            work=work,
            model=model,
            draft_cache=drafter.cache,
            window_table=layout.device_windows(),
        )
    )
    return Runner(setup, through, probe=probe, joins_idle=parts.rows.joins_idle)


def _layout(site: Site, parts: EngineParts) -> RowLayout | SlotLayout:
    if site.scenario.engine.layout is Layout.ROWS:
        return RowLayout(make_setup(*site[:3]), parts.rows, cache=parts.cache, decode=parts.decode)
    pool = parts.slots.pool(site.device, max(2, site.scenario.engine.depth))
    return SlotLayout(
        make_setup(*site[:3], inputs=pool.inputs), parts.slots, rows=parts.rows, pool=pool
    )


def _grammar_masks(setup: Setup, parts: EngineParts) -> GrammarMasks | NoGrammarMasks:
    if any(request.grammar_modulus for request in setup.scenario.requests):
        return GrammarMasks(setup, parts.decode.hand_off(setup))
    return NoGrammarMasks()
