"""Whole runs: lossless whatever happens, repeatable, drafting as asked."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from hypothesis import given, settings

from racegate.history.observe import Boundary
from racegate.scenario.settings import DrafterKind, Numerics
from racegate.scenario.spec import OwnScenario
from racegate_reference.decoding import plain_decode, truth
from racegate_reference.drafting import Sampled, make_drafter
from racegate_reference.engine import run_reference
from racegate_reference.model import build_model
from racegate_reference.paths import Path
from reference_scenarios import SMALL, busy, request, scenario, scenarios


@given(scenarios())
@settings(max_examples=150)
def test_delivery_is_plain_decoding(of: OwnScenario) -> None:
    run = run_reference(of)
    for asked in of.requests:
        plain = plain_decode(of, asked)
        delivered = run.delivered[asked.name]
        if run.finished[asked.name] == "abort":
            assert delivered == plain[: len(delivered)]
        else:
            assert delivered == plain
            stopped = asked.stop_after == len(plain) or asked.stop_token == plain[-1]
            assert run.finished[asked.name] == ("stop" if stopped else "max_tokens")


@given(scenarios())
@settings(max_examples=40)
def test_steps_sample_the_truth_and_nothing_else(of: OwnScenario) -> None:
    """Of every row: its inputs up to the first rejected draft, and its outputs, are the truth."""
    tokens = truth(of)
    by_boundary = {(o.step, o.boundary): o.values for o in run_reference(of).observations}
    for (step, boundary), sampled in by_boundary.items():
        if boundary is not Boundary.SAMPLED:
            continue
        prepared, inputs = by_boundary[step, Boundary.PREPARED], by_boundary[step, Boundary.INPUTS]
        drafts = {name: d for name, _, d in by_boundary[step, Boundary.SCHEDULED]["plan"]}
        for row, name in enumerate(prepared["rows"]):
            start, d = int(inputs["computed"][row]), drafts[name]
            ids = inputs["input_ids"][slice(*inputs["query_start"][row : row + 2])].tolist()
            known, a = start + len(ids) - d, int(sampled["accepted"][row])
            expected = list(tokens[name])
            assert ids[: len(ids) - d] == expected[start:known]
            end = known if prepared["discarded"][row] else known - 1 + a
            assert sampled["next_token"][row] == expected[end]
            if prepared["discarded"][row]:
                assert prepared["backup_token"][row] == expected[end]
                continue
            assert sampled["sampled"][row, :a].tolist() == expected[known : known + a]
            kept = ids[len(ids) - d :][: a - 1]
            assert kept == expected[known : known + a - 1]
            # Verification stopped for a reason: all drafts accepted, or one was wrong, or missing.
            if not of.engine.drafter.may_miss:
                assert a == 1 + d or ids[len(ids) - d + a - 1] != expected[known + a - 1]


@given(scenarios())
@settings(max_examples=40)
def test_scripted_drafts_reach_their_target(of: OwnScenario) -> None:
    """What a step accepts is the target of the step that drafted, cut by the drafts scheduled."""
    if of.engine.drafter is not DrafterKind.SCRIPTED:
        return
    targets: dict[str, int] = {}
    drafts: dict[str, int] = {}
    rows: tuple[str, ...] = ()
    for observation in run_reference(of).observations:
        values = observation.values
        if observation.boundary is Boundary.SCHEDULED:
            drafts = {name: d for name, _, d in values["plan"]}
        elif observation.boundary is Boundary.PREPARED:
            rows, next_targets = values["rows"], values["accept_target"].tolist()
        elif observation.boundary is Boundary.SAMPLED:
            for name, accepted in zip(rows, values["accepted"].tolist(), strict=True):
                if drafts[name]:
                    assert accepted == min(targets[name], 1 + drafts[name])
            targets = dict(zip(rows, next_targets, strict=True))


def test_greedy_does_not_depend_on_the_seed() -> None:
    def seeded(seed: int) -> OwnScenario:
        requests = tuple(msgspec.structs.replace(r, seed=seed) for r in busy().requests)
        return msgspec.structs.replace(busy(), requests=requests)

    first, second = run_reference(seeded(1)), run_reference(seeded(2))
    for asked in busy().requests:
        same = first.delivered[asked.name] == second.delivered[asked.name]
        assert same == (asked.temperature == 0.0)


def test_runs_repeat() -> None:
    first, second = run_reference(busy()), run_reference(busy())
    for one, other in zip(first.observations, second.observations, strict=True):
        assert (one.step, one.boundary) == (other.step, other.boundary)
        for name, value in one.values.items():
            np.testing.assert_array_equal(value, other.values[name])


def test_the_margin_is_infinite_in_exact() -> None:
    assert run_reference(busy()).margin == math.inf


def test_the_margin_is_the_closest_decision() -> None:
    """One step: it decides the token at position 3 and two drafts."""
    closest = set()
    for seed in range(8):
        spec = msgspec.structs.replace(SMALL, numerics=Numerics.FLOAT32, seed=seed)
        model = build_model(spec)
        asked = request(max_tokens=1)
        of = scenario(asked, model=spec, drafter=DrafterKind.MTP, draft_len_max=2)
        path = Path(model, asked)
        drafter = make_drafter(model, of.engine, path)
        assert drafter is not None
        drafts = drafter.propose(Sampled(position=2, tokens=path.tokens(3, 4), target=1))
        assert run_reference(of).margin == min(path.margin(3), drafts.margin)
        closest.add(path.margin(3) < drafts.margin)
    assert closest == {True, False}


def test_truth_goes_beyond_the_longest_request() -> None:
    of = busy(model_len_max=30)
    tokens = truth(of)
    engine = of.engine
    longest = max(len(asked.prompt) + asked.max_tokens for asked in of.requests)
    reach = min(30, longest + engine.depth * (1 + engine.draft_len_max))
    for asked in of.requests:
        assert len(tokens[asked.name]) == reach + engine.draft_len_max + 2
        assert tokens[asked.name][: len(asked.prompt)] == asked.prompt
        plain = plain_decode(of, asked)
        assert tokens[asked.name][len(asked.prompt) :][: len(plain)] == plain
