"""The catalogue of features, the table of pairs, and what the generator promises of itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from racegate.explore.drawn import draw_requests
from racegate.explore.features.catalogue import FEATURES
from racegate.explore.features.possible import IMPOSSIBLE, why_impossible
from racegate.explore.features.settings import SETTINGS, settings_of
from racegate.explore.features.summary import summarise
from racegate.explore.features.table import (
    NAMES,
    POSSIBLE,
    FeatureTable,
    FeatureTotals,
    missing_pairs,
    wrong_pairs,
)
from racegate.explore.generate import (
    PUBLISHED_STEPS,
    _with_common_prompt,
    _with_late_drafters,
    generate,
    generate_holds,
    seeded,
)
from racegate.explore.strategies import scenarios
from racegate.explore.swarm import Theme, Themes, draw_themes
from racegate.scenario.settings import (
    CacheMode,
    Cascade,
    EngineSpec,
    Layout,
    ModelSpec,
    Numerics,
    OutputEvent,
)
from racegate.scenario.spec import Abort, OwnScenario, Request, Rotate
from racegate.scenario.validation import validate

DEFAULT_ENGINE = EngineSpec()
BY_NAME = {feature.name: feature for feature in FEATURES}


def drawn(index: int) -> OwnScenario:
    return generate(seeded(3, index), name="drawn")


def test_every_feature_has_a_name_of_its_own_and_a_reason() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(feature.why for feature in FEATURES)


@pytest.mark.parametrize(("ranks", "said"), [(1, "one"), (2, "several"), (4, "several")])
def test_one_rank_is_not_several(ranks: int, said: str) -> None:
    engine = msgspec.structs.replace(DEFAULT_ENGINE, ranks=ranks)
    assert settings_of(msgspec.structs.replace(drawn(0), engine=engine))["ranks"] == said


def test_needs_name_settings_and_values_that_exist() -> None:
    values: dict[str, set[str]] = {}
    for index in range(400):
        for name, value in settings_of(drawn(index)).items():
            values.setdefault(name, set()).add(value)
    for feature in FEATURES:
        for name, needed in feature.needs.items():
            assert needed <= values[name], f"{feature.name} needs {name} = {needed - values[name]}"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("depth = 1", "depth = 2", "depth = 1 needs depth = 1, depth = 2 needs 2"),
        ("save", "cache_mode = align", "save needs cache_mode = offload, cache_mode = align needs"),
        ("k = 0", "drafter = mtp", "k = 0 needs k = 0, drafter = mtp needs 1 or 2 or 3 or 4"),
        ("rotation", "layout = slots", "rotation needs layout = rows, layout = slots needs slots"),
        ("slot taken again", "condense move", "slot taken again needs layout = slots"),
        ("stale frame", "depth = 1", "stale frame needs depth = 2 or 3 or 4"),
    ],
)
def test_impossible_pairs_say_why(first: str, second: str, reason: str) -> None:
    said = why_impossible(BY_NAME[first], BY_NAME[second])
    assert said is not None
    assert said.startswith(reason)
    assert (first, second) not in POSSIBLE
    assert (second, first) not in POSSIBLE


def test_declared_pairs_are_of_features_and_follow_from_no_setting() -> None:
    for (first, second), reason in IMPOSSIBLE.items():
        assert why_impossible(BY_NAME[first], BY_NAME[second]) == reason
    pairs = {frozenset(pair) for pair in IMPOSSIBLE}
    assert len(pairs) == len(IMPOSSIBLE)


def test_most_pairs_are_possible() -> None:
    assert len(POSSIBLE) > 0.9 * len(list(combinations(FEATURES, 2)))


some_features = st.lists(st.sampled_from(NAMES), unique=True).map(frozenset)


def table_of(runs: list[frozenset[str]]) -> FeatureTable:
    counter = FeatureTotals()
    for names in runs:
        counter.add(names)
    return counter.table()


@settings(max_examples=30)
@given(st.lists(some_features, max_size=3), st.lists(some_features, max_size=3))
def test_tables_count_pairs_and_add_up(
    some: list[frozenset[str]], more: list[frozenset[str]]
) -> None:
    table = table_of(some + more)
    assert table.runs == len(some + more)
    for first in ("depth = 1", "gap", "graphs of two sizes"):
        for second in ("gap", "k = 3", "depth = 1"):
            both = sum({first, second} <= names for names in some + more)
            assert table.count(first, second) == both
    parts = FeatureTotals()
    for part in (table_of(some), table_of(more)):
        parts.add_table(msgspec.json.decode(msgspec.json.encode(part), type=FeatureTable))
    assert parts.table() == table


def test_a_table_of_other_features_is_refused() -> None:
    other = msgspec.structs.replace(table_of([]), features=NAMES[1:])
    with pytest.raises(ValueError, match="other features"):
        FeatureTotals().add_table(other)


def test_missing_and_wrong_pairs_are_found() -> None:
    empty = table_of([])
    assert missing_pairs(empty) == list(POSSIBLE)
    assert wrong_pairs(empty) == []
    table = table_of([frozenset({"depth = 1", "gap"}), frozenset({"save", "cache_mode = align"})])
    assert len(missing_pairs(table)) == len(POSSIBLE) - 1
    assert wrong_pairs(table) == [("cache_mode = align", "save")]


def test_a_draw_depends_on_seed_and_index_only() -> None:
    again = [drawn(index) for index in range(60)]
    assert again == [drawn(index) for index in range(60)]
    assert len({msgspec.json.encode(scenario) for scenario in again}) == 60
    assert drawn(0) != generate(seeded(4, 0), name="drawn")


def test_every_draw_is_valid_and_runs_something() -> None:
    for index in range(1000):
        scenario = validate(drawn(index))
        aborted = {event.request for event in scenario.events if isinstance(event, Abort)}
        assert scenario.requests[0].name not in aborted


def test_layouts_and_output_events_are_drawn_and_slots_never_rotate() -> None:
    drawn_engines = [drawn(index).engine for index in range(300)]
    for layout in Layout:
        for event in OutputEvent:
            assert sum((e.layout, e.output_event) == (layout, event) for e in drawn_engines) > 15
    rotated = [
        scenario.engine.layout
        for scenario in map(drawn, range(300))
        if any(isinstance(event, Rotate) for event in scenario.events)
    ]
    assert rotated and set(rotated) == {Layout.ROWS}


def test_holds_are_of_what_a_layout_has() -> None:
    named = {
        layout: {
            hold.until.partition("@")[0]
            for index in range(100)
            for hold in generate_holds(seeded(3, index), layout=layout).holds
        }
        for layout in Layout
    }
    assert "host:condense" in named[Layout.ROWS] and "host:lay_out" not in named[Layout.ROWS]
    assert "host:lay_out" in named[Layout.SLOTS] and "host:condense" not in named[Layout.SLOTS]


def test_float_numerics_sample_at_random_too() -> None:
    floats = [s for s in map(drawn, range(200)) if s.model.numerics is Numerics.FLOAT32]
    assert sum(any(r.temperature for r in s.requests) for s in floats) > 5


def test_themes_leave_each_other_out() -> None:
    drawn_themes = [draw_themes(seeded(3, index)) for index in range(400)]
    for theme in Theme:
        assert 0.1 < sum(theme in themes for themes in drawn_themes) / 400 < 0.45
    assert min(map(len, drawn_themes)) <= 2


@pytest.mark.parametrize("theme", [Theme.RANDOM, Theme.GRAMMAR, Theme.STOPS])
def test_what_is_no_theme_is_left_out_altogether(theme: Theme) -> None:
    """Requests of scenarios with it and without: with it some have it, without none."""
    has: dict[Theme, Callable[[Request], object]] = {
        Theme.RANDOM: lambda one: one.temperature,
        Theme.GRAMMAR: lambda one: one.grammar_modulus,
        Theme.STOPS: lambda one: one.stop_after or one.stop_token is not None,
    }
    for themes in (frozenset({theme}), frozenset()):
        found = [any(has[theme](one) for one in requests_of(themes, index)) for index in range(20)]
        assert any(found) == bool(themes)


def requests_of(themes: Themes, index: int, engine: EngineSpec = DEFAULT_ENGINE) -> list[Request]:
    return list(draw_requests(seeded(5, index), themes, engine, vocab_size=97))


@pytest.mark.parametrize("edge", [4, 8])
@pytest.mark.parametrize("k", [1, 3])
def test_lengths_stand_at_both_sides_of_every_boundary(edge: int, k: int) -> None:
    engine = EngineSpec(draft_len_max=k, block_size=edge, state_interval=2 * edge)
    drawn_lengths = {
        len(one.prompt) for index in range(80) for one in requests_of(Themes(), index, engine)
    }
    assert drawn_lengths == {1, k + 1, k + 2, edge - 1, edge, edge + 1, 7, 13, 20}


def test_a_second_turn_begins_with_what_the_first_one_delivers_and_nothing_else() -> None:
    turns = 0
    for index in range(60):
        first, *others = requests_of(frozenset({Theme.TURNS}), index)
        for one in others:
            if one.prompt[: len(first.prompt)] == first.prompt and len(first.prompt) > 1:
                turns += 1
                assert 0 < len(one.prompt) - len(first.prompt) <= first.max_tokens
                assert one.arrive > first.arrive + first.max_tokens
    assert turns > 20


def test_the_simplest_scenario_is_about_nothing() -> None:
    simplest = generate(lambda count: 0, name="simplest")
    assert len(simplest.requests) == 1
    assert simplest.events == ()
    assert simplest.engine.blocks == simplest.engine.state_blocks == 96
    assert settings_of(simplest)["cache_mode"] == "none"


def test_shrinking_keeps_only_the_theme_that_is_needed() -> None:
    shrinking = settings(phases=tuple(Phase))  # whatever the profile
    small = find(
        scenarios(), lambda s: any(isinstance(e, Abort) for e in s.events), settings=shrinking
    )
    assert len(small.requests) == 2
    assert [type(event) for event in small.events] == [Abort]
    assert small.engine.depth == 2
    assert not any(request.temperature or request.grammar_modulus for request in small.requests)


def test_settings_are_features_of_one_setting_each() -> None:
    for feature in SETTINGS:
        name, _, value = feature.name.partition(" = ")
        assert feature.needs[name] == frozenset({value})


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FLOAT32])
@pytest.mark.parametrize("themes", [frozenset(), frozenset({Theme.RANDOM})], ids=len)
def test_scripts_draw_drafts_at_temperatures_among_exact_numbers_only(
    numerics: Numerics, themes: Themes
) -> None:
    model = ModelSpec(numerics=numerics)
    found = _with_late_drafters(lambda count: count - 1, themes, model, DEFAULT_ENGINE)
    is_drawn = bool(themes) and numerics is Numerics.EXACT
    assert found.draws_drafts == is_drawn
    assert (found == DEFAULT_ENGINE) == (not is_drawn)


def test_a_feature_has_its_rarest_partner_whichever_of_the_two_comes_first() -> None:
    """Each of two that met least often names the other, and no pair is rarer."""
    runs = [frozenset(NAMES)] * 3
    runs += [frozenset(NAMES) - {"gap"}, frozenset(NAMES) - {"depth = 1"}]
    rows = {row.name: row for row in summarise(table_of(runs)).rows}
    assert rows["gap"].partner == "depth = 1" and rows["depth = 1"].partner == "gap"
    assert rows["gap"].least == rows["depth = 1"].least == 3


def test_a_common_prompt_comes_first_and_is_published_before_others_begin_with_it() -> None:
    """The first comes when the earliest would have; who comes late enough keeps its time."""
    engine = EngineSpec(cache_mode=CacheMode.ALL, cascade=Cascade.ON, state_interval=4)
    prompts = {"A": (1, 2), "B": (9, 8, 7, 6, 5, 4), "C": (3,)}
    arrivals = {"A": 5, "B": 2, "C": 40}
    requests = tuple(
        Request(name=name, arrive=arrivals[name], prompt=prompt, max_tokens=3)
        for name, prompt in prompts.items()
    )
    given = _with_common_prompt(frozenset(), engine, requests)
    assert [one.arrive for one in given] == [2, 2 + PUBLISHED_STEPS, 40]
    assert [one.prompt for one in given] == [(9, 8, 7, 6, 5, *one.prompt) for one in requests]
