"""Puts a runner together from what every inner room gives, in the order in which its memory is
taken from the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.engine.cache.align_cache import FixedColumns
from racegate.engine.cache.fresh_blocks import FreshBlocks, NoZeroing
from racegate.engine.cache.pools import Pools, pools_of
from racegate.engine.cache.store import NoStore, PrefixStore
from racegate.engine.decode.draft_weights import DraftWeights, NoDraftWeights
from racegate.engine.decode.drafters import make_drafter
from racegate.engine.decode.grammar import GrammarMasks, NoGrammarMasks
from racegate.engine.decode.sampling import Sampling
from racegate.engine.model.bound import Bound
from racegate.engine.model.graphs import ForwardPass
from racegate.engine.model.model import Model
from racegate.engine.observe.probe import Memory, Probe
from racegate.engine.parts import EngineParts
from racegate.engine.rows.input_prep import InputPrep
from racegate.engine.rows.runner import Runner, Stations
from racegate.engine.rows.tenants import Tenants
from racegate.engine.state.setup import Setup
from racegate.scenario.spec import CacheMode, Zeroing


def make_runner(
    setup: Setup,
    parts: EngineParts,
    *,
    truth: Mapping[str, tuple[int, ...]],
    probe: Probe,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Runner:
    """A runner of these parts. truth: the true tokens of each request, for the scripted drafter;
    weights: of the model, by name, drawn from its seed by default.
    """
    inputs, work = setup.inputs, setup.work
    model = Model(setup, weights=weights)
    drafter = make_drafter(setup, model, parts.decode, truth=truth)
    prep = InputPrep(setup, parts.rows)
    sampling = Sampling(setup, parts.decode)
    cache_mode = setup.scenario.engine.cache_mode
    count_path = parts.rows.count_path(cache_mode)(setup)
    has_columns = cache_mode.has_columns
    columns = parts.cache.align_cache(setup, model) if has_columns else FixedColumns(setup)
    pools = pools_of(model, drafter.cache)
    fresh = _fresh_blocks(setup, pools, parts)
    store = PrefixStore(setup, pools) if cache_mode is CacheMode.OFFLOAD else NoStore()
    grammar_masks = _grammar_masks(setup, parts)
    draft_weights = _draft_weights(setup, parts)
    tenants = Tenants(setup, count_path, parts.rows, others=draft_weights.row_tables)
    bound = Bound(inputs=inputs, work=work, window_table=columns.window_table.gpu)
    forward = ForwardPass(setup, model=model, bound=bound, parts=parts.model)
    stations = Stations(
        tenants=tenants,
        count_path=count_path,
        columns=columns,
        fresh=fresh,
        store=store,
        prep=prep,
        forward=forward,
        model=model,
        sampling=sampling,
        grammar_masks=grammar_masks,
        draft_weights=draft_weights,
        drafter=drafter,
    )
    probe.attach(Memory(inputs=inputs, work=work, model=model, draft_cache=drafter.cache))
    return Runner(setup, stations, parts.rows, probe=probe)


def _fresh_blocks(setup: Setup, pools: Pools, parts: EngineParts) -> FreshBlocks | NoZeroing:
    if setup.scenario.engine.zeroing is Zeroing.FRESH:
        return parts.cache.fresh_blocks(setup, pools)
    return NoZeroing()


def _draft_weights(setup: Setup, parts: EngineParts) -> DraftWeights:
    if setup.scenario.engine.draws_drafts:
        return parts.decode.draft_weights(setup)
    return NoDraftWeights()


def _grammar_masks(setup: Setup, parts: EngineParts) -> GrammarMasks | NoGrammarMasks:
    if any(request.grammar_modulus for request in setup.scenario.requests):
        return GrammarMasks(setup, parts.decode.hand_off(setup))
    return NoGrammarMasks()
