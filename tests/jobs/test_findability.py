"""Hit rates and clean runs against exact probabilities; and whether a finding is fixed."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.faults.catalogue import find_fault
from racegate.jobs import verify as verifying
from racegate.jobs.campaign import Campaign
from racegate.jobs.findability import ALPHA, clean_run, findability, interval, listed, rate_below
from racegate.jobs.generated import CampaignSpec, Report, look_at
from racegate.jobs.stores.records import KeptFinding
from stored import with_subject

FAULT = "correction-partial-fields"
SPEC = CampaignSpec(seed=0, fault=FAULT)
COUNTS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


def at_most(hits: int, n: int, rate: float) -> float:
    return sum(math.comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(hits + 1))


@given(COUNTS)
def test_the_interval_ends_where_so_many_hits_are_too_rare(counts: tuple[int, int]) -> None:
    hits, n = counts
    low, high = interval(hits, n)
    assert 0 < low < hits / n <= high <= 1
    assert 1 - at_most(hits - 1, n, low) == pytest.approx(ALPHA / 2)
    if hits < n:
        assert at_most(hits, n, high) == pytest.approx(ALPHA / 2)


@given(COUNTS)
def test_a_clean_run_is_as_short_as_chance_allows(counts: tuple[int, int]) -> None:
    hits, n = counts

    def chance(clean: int) -> Fraction:
        return Fraction(math.comb(n, hits), math.comb(n + clean, hits))

    enough = clean_run(hits, n)
    assert chance(enough) <= Fraction(1, 100) < chance(enough - 1)


def test_with_many_hits_it_is_the_rule_of_three() -> None:
    found = findability(20_000, 1_000_000)
    assert found.clean_run == pytest.approx(math.log(1 / ALPHA) / 0.02, rel=0.02)
    assert (found.rate_low, found.rate_high) == pytest.approx((0.0196, 0.0204), rel=0.01)
    assert rate_below(300) == pytest.approx(4.6 / 300, rel=0.01)
    assert clean_run(1, 1000) == 99_000  # one hit says little


@pytest.fixture(scope="module")
def report() -> Report:
    return look_at(SPEC, 0, find_fault(FAULT), set())


@pytest.fixture
def folder(report: Report, tmp_path: Path) -> Path:
    """Of a campaign that has found one thing, not minimised, in the first of forty scenarios."""
    campaign = Campaign(SPEC, tmp_path)
    for index in range(40):
        shown = report if index < 20 else msgspec.structs.replace(report, signature=None)
        campaign.add(msgspec.structs.replace(shown, index=index))
    campaign.save(0.0)
    return tmp_path


def test_only_campaigns_that_look_alike_are_added_up(report: Report, tmp_path: Path) -> None:
    assert report.found is not None
    state = msgspec.structs.replace(Campaign(SPEC, tmp_path).state(0.0), done=10, hits={"a/x": 2})
    other = msgspec.structs.replace(state, seed=1, hits={})
    deeper = msgspec.structs.replace(state, seed=2, holds_each=5)
    found = KeptFinding(signature="a/x", is_minimal=True, witness=report.found.witness)
    (one,) = listed([found], [state, other, deeper])
    assert one.findability is not None
    assert (one.findability.hits, one.findability.scenarios) == (2, 20)


def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["campaign", *arguments, "--json", "-"])
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def witness_in(folder: Path) -> str:
    (path,) = folder.glob("*.witness.json")
    return str(path)


def test_findings_are_listed_with_their_rates(folder: Path, tmp_path: Path) -> None:
    code, shown = asked("findings", "--store", str(folder), "--out", str(tmp_path / "w"))
    assert (code, shown["campaigns"], shown["scenarios"]) == (0, 1, 40)
    (one,) = shown["findings"]
    assert one["findability"]["hits"] == 20
    assert CliRunner().invoke(app, ["replay", witness_in(tmp_path / "w")]).exit_code == 1
    text = CliRunner().invoke(app, ["campaign", "findings", "--store", str(folder)]).output
    assert one["signature"] in text and "20 of 40" in text


def test_what_its_witness_still_shows_is_1(folder: Path) -> None:
    code, shown = asked("verify", witness_in(folder))
    assert (code, shown["outcome"], shown["scenarios"]) == (1, "still there", 0)


@pytest.fixture
def repaired(report: Report, monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """The fault is none any more; what is put in here is what scenarios show all the same."""
    shows: list[Report] = []
    clean = msgspec.structs.replace(report, signature=None, found=None)

    def look(spec: CampaignSpec, index: int, *rest: object) -> Report:
        found = shows.pop() if shows else clean
        return msgspec.structs.replace(found, index=index)

    real = verifying.replay

    def replay(witness: Any, **how: Any) -> Any:
        return real(with_subject(witness, fault=None), **how)

    monkeypatch.setattr("racegate.jobs.generated.look_at", look)
    monkeypatch.setattr("racegate.jobs.generated.plant_canaries", lambda look: SelfCheck())
    monkeypatch.setattr(verifying, "replay", replay)
    return shows


@pytest.mark.usefixtures("repaired")
def test_fixed_is_said_after_as_many_scenarios_as_it_takes(folder: Path) -> None:
    code, shown = asked("verify", witness_in(folder))
    assert (code, shown["outcome"], shown["replay"]) == (0, "fixed", "nothing found")
    assert shown["scenarios"] == shown["before"]["clean_run"] == clean_run(20, 40)
    signature = shown["signature"]
    code, shown = asked("verify", signature, "--store", str(folder), "--scenarios", "2")
    assert (code, shown["outcome"], shown["scenarios"]) == (4, "too short", 2)
    assert shown["rate_below"] == pytest.approx(0.9)


def test_what_is_found_and_does_not_replay_is_3(
    folder: Path, report: Report, repaired: list[Report]
) -> None:
    repaired.append(report)
    code, shown = asked("verify", witness_in(folder))
    assert (code, shown["outcome"], shown["seen_in"]) == (3, "flaky", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "a/b"], "give --store, or a witness file"),
        (["verify", "a/b", "--store", "."], "neither a campaign's folder nor a store"),
        (["findings", "--store", "nowhere"], "neither a campaign's folder nor a store"),
    ],
)
def test_what_cannot_be_looked_up_is_bad_input(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["campaign", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_what_no_campaign_counted_is_bad_input(folder: Path) -> None:
    asks = ["campaign", "verify", "a/b", "--store", str(folder)]
    result = CliRunner().invoke(app, asks)
    assert (result.exit_code, "no finding here has the signature a/b" in result.output) == (2, True)
