"""The truth stops where no drafter looks any more: nothing changes if it goes on."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from racegate.check.checker import Checker
from racegate.check.findings import digest_of
from racegate.explore.strategies import scenarios
from racegate.history.schedule import EAGER, LATE, Schedule
from racegate.scenario.settings import DrafterKind
from racegate.scenario.spec import OwnScenario
from racegate_reference.decoding import truth
from racegate_reference.paths import Paths
from support import IS_NIGHTLY, NAMES, scenario


def continued(of: OwnScenario, paths: Paths) -> dict[str, tuple[int, ...]]:
    """The truth of all requests, as far as the model reaches."""
    length = of.engine.model_len_max + of.engine.draft_len_max + 2
    return {r.name: paths.path(of.model, r).tokens(0, length) for r in of.requests}


def digest_with(of: OwnScenario, schedule: Schedule, *, is_continued: bool) -> str:
    checker = Checker(of)
    if is_continued:
        checker.subject.truth = continued(checker.scenario, Paths())
    return digest_of(checker.execute(schedule=schedule), ())


@pytest.mark.parametrize("name", NAMES if IS_NIGHTLY else NAMES[1::2])
def test_no_script_looks_behind_the_end_of_the_truth(name: str) -> None:
    of = scenario(name)
    assert digest_with(of, LATE, is_continued=False) == digest_with(of, LATE, is_continued=True)


@settings(max_examples=10_000 if IS_NIGHTLY else 20)
@given(scenarios())
def test_no_generated_scenario_does(of: OwnScenario) -> None:
    engine = msgspec.structs.replace(of.engine, drafter=DrafterKind.SCRIPTED)
    scripted = msgspec.structs.replace(of, engine=engine)
    short = digest_with(scripted, EAGER, is_continued=False)
    assert short == digest_with(scripted, EAGER, is_continued=True)


def test_what_is_not_delivered_is_not_computed() -> None:
    of = scenario("finish-and-condense")
    engine = msgspec.structs.replace(of.engine, model_len_max=2048)
    long = msgspec.structs.replace(of, engine=engine)
    longest = max(len(r.prompt) + r.max_tokens for r in of.requests)
    assert all(len(tokens) < longest + 32 for tokens in truth(long).values())


def test_paths_are_shared_by_requests_that_draw_alike() -> None:
    of = scenario("finish-and-condense")
    paths = Paths()
    first = paths.path(of.model, of.requests[0])
    again = msgspec.structs.replace(of.requests[0], name="Z", arrive=3, max_tokens=2)
    assert paths.path(of.model, again) is first
    assert paths.path(of.model, msgspec.structs.replace(again, seed=again.seed + 1)) is not first
