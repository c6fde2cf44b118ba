"""Puts a runner together from what every inner room gives, in the order in which its memory is
taken from the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer
from racegate.engine.cache.store import PrefixStore
from racegate.engine.decode.drafters import make_drafter
from racegate.engine.decode.grammar import GrammarMasks
from racegate.engine.decode.sampling import Sampling
from racegate.engine.model.graphs import ForwardPass
from racegate.engine.model.model import Model
from racegate.engine.model.padding import Bound
from racegate.engine.observe.probe import Probe
from racegate.engine.parts import EngineParts
from racegate.engine.rows.input_batch import InputBatch
from racegate.engine.rows.input_prep import InputPrep
from racegate.engine.rows.runner import Equipment, Runner
from racegate.engine.state.buffers import make_inputs, make_work
from racegate.engine.state.counters import Counters
from racegate.engine.state.lanes import Lane
from racegate.engine.state.sizes import sizes_of
from racegate.scenario.spec import CacheMode, Scenario, Zeroing


def make_runner(
    scenario: Scenario,
    device: Device,
    *,
    parts: EngineParts,
    truth: Mapping[str, tuple[int, ...]],
    counters: Counters,
    probe: Probe,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Runner:
    """A runner of these parts. weights: of the model, by name; drawn from its seed by default."""
    compute = device.stream(Lane.COMPUTE)
    sizes = sizes_of(scenario)
    inputs = make_inputs(device, compute, sizes)
    work = make_work(device, compute, sizes)
    model = Model(scenario, device, compute, sizes=sizes, weights=weights)
    drafter = make_drafter(
        scenario, device, compute, model, sizes=sizes, truth=truth, parts=parts.decode
    )
    prep = InputPrep(scenario, device, compute, inputs=inputs, work=work, parts=parts.rows)
    sampling = Sampling(
        scenario,
        device,
        compute=compute,
        inputs=inputs,
        work=work,
        parts=parts.decode,
        sizes=sizes,
    )
    cache_mode = scenario.engine.cache_mode
    counts = parts.rows.count_path(cache_mode)(device, compute, rows_max=sizes.rows)
    align = (
        parts.cache.align_cache(scenario, device, compute, model, counters)
        if cache_mode.has_columns
        else None
    )
    pools = _pools(model, drafter.cache)
    common = (device, compute, counters)
    fresh = store = grammar = None
    if scenario.engine.zeroing is Zeroing.FRESH:
        fresh = parts.cache.fresh_blocks(*common, attention=pools[0], state=pools[1])
    if cache_mode is CacheMode.OFFLOAD:
        store = PrefixStore(scenario.engine, *common, attention=pools[0], state=pools[1])
    if any(request.grammar_modulus for request in scenario.requests):
        hand_off = parts.decode.hand_off(device, sizes)
        grammar = GrammarMasks(scenario, *common, sizes=sizes, hand_off=hand_off)
    tables = (inputs.block_table.cpu, inputs.state_table.cpu)
    moving = (*parts.rows.row_tables(inputs), *counts.row_tables)
    batch = InputBatch(moving, tables, counters, swap_rows=parts.rows.swap_rows)
    windows = inputs.state_table if align is None else inputs.window_table
    forward = ForwardPass(
        scenario,
        device,
        compute,
        model=model,
        bound=Bound(inputs=inputs, work=work, window_table=windows.gpu),
        parts=parts.model,
        counters=counters,
    )
    equipment = Equipment(
        compute=compute,
        sizes=sizes,
        inputs=inputs,
        work=work,
        model=model,
        drafter=drafter,
        prep=prep,
        sampling=sampling,
        counts=counts,
        align=align,
        fresh=fresh,
        store=store,
        grammar=grammar,
        batch=batch,
        forward=forward,
        parts=parts.rows,
    )
    return Runner(scenario, device, equipment, counters=counters, probe=probe)


def _pools(
    model: Model, draft_cache: DeviceBuffer | None
) -> tuple[dict[str, DeviceBuffer], dict[str, DeviceBuffer]]:
    """The pools that attention blocks index, and those that state blocks do, by name."""
    attention = {f"kv.{index}": cache for index, cache in model.caches.items()}
    if draft_cache is not None:
        attention["draft_kv"] = draft_cache
    state = {f"state.{index}": pool for index, pool in model.states.items()}
    state |= {f"conv.{index}": pool for index, pool in model.windows.items()}
    return attention, state
