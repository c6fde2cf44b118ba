"""The report of a finding: one cause first, for every witness, on the page and on a terminal."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from pictured import NAMES, found, judged, material
from racegate.history.finding import FindingKind
from racegate.report.cause.impact import impact_of
from racegate.report.cause.pair import Relation
from racegate.report.finding.page import finding_page
from racegate.report.text import print_cause
from racegate.scenario.config import OptionChange
from racegate.scenario.untrusted.console import PrintableConsole

# What a user is told of some of them.
TOLD = {
    "accepted-copy-after-row-move": "Request C goes on with the accepted count of request A: it "
    "reads its recurrent state from column 1 instead of column 0",
    "accepted-read-before-copy": "an accepted count that nobody wrote",
    "accepted-zero-unclamped": "no column at all (the count is 0)",
    "dummy-step-unguarded": "The user sees it: request A: delivered token 2 is 49",
    "pinned-input-overwrite": "In the end the engine stopped: ValueError",
    "plan-before-producer": "attends over 2 tokens of its sequence instead of 3",
    "recycle-in-flight": "Request A leaves attention keys of layer 2 that are not its own",
    "row-swap-alias-seed": "Request A is given token 11 where 62 is right",
}


def first_screen(name: str) -> str:
    """The text of the page before what is folded, pictured or tabled."""
    body = finding_page(material(name)).partition("<main>")[2]
    first, _, rest = body.partition("</section>")
    assert rest and "<figure" not in first and "<details" not in first
    return " ".join(unescape(re.sub("<[^>]*>", " ", first)).split())


def on_a_terminal(name: str) -> str:
    console = PrintableConsole(width=400)
    with console.capture() as shown:
        print_cause(console, found(name).account)
    return " ".join(re.sub("[│╭╮╰╯─]", " ", shown.get()).split())


def test_the_page_says_which_option_gave_way() -> None:
    seen = material("common-prefix-optimistic-resolved-in-one-place")
    change = OptionChange(option="cascade", asked="on", effective="off", because="drafts")
    page = finding_page(msgspec.structs.replace(seen, warnings=(change.text,)))
    assert "<p>Warning: drafts: cascade on becomes off</p>" in page
    assert "Warning:" not in finding_page(seen)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_says_it_all(name: str) -> None:
    """Buffer, both operations, rows with their requests, the missing edge or that none is."""
    account = found(name).account
    if account.cause.kind is FindingKind.MISMATCH:
        assert account.cause.op is not None and account.cause.op in account.impact
        assert account.cause.other is not None and account.cause.other in account.impact
        assert "let all ranks decide" in on_a_terminal(name)
        return
    if account.first is None:  # what nobody has written has no pair
        assert account.cause.signature == "page/unfilled/kernel"
        assert account.cause.message in on_a_terminal(name)
        return
    assert account.first is not None and account.second is not None
    assert account.buffer is not None and account.places
    said = [account.buffer, account.first.name, account.second.name, account.impact]
    said += [place.text for place in account.places]
    if account.relation is Relation.UNORDERED:
        assert account.edge is not None, "the engine declares an edge for every pair"
        said += [account.edge.name, f"a wait of {account.second.lane} for it"]
    else:
        said.append("None is missing")
    for shown in (first_screen(name), on_a_terminal(name)):
        for text in said:
            assert text in shown, f"{text!r} is not in {shown}"


@pytest.mark.parametrize("name", NAMES)
def test_a_cause_and_its_consequences_are_all_that_was_found(name: str) -> None:
    account = found(name).account
    together = (account.cause, *account.consequences)
    assert sorted(f.signature for f in together) == sorted(
        f.signature for f in judged(name).result.findings
    )
    is_race = bool(judged(name).conflicts)
    assert (account.relation is Relation.UNORDERED) == is_race
    assert (account.cause.kind is FindingKind.CONFLICT) == is_race


@pytest.mark.parametrize("name", TOLD)
def test_a_user_is_told_what_happens(name: str) -> None:
    assert TOLD[name] in found(name).account.impact


@pytest.mark.parametrize("name", NAMES)
def test_harm_is_claimed_from_what_a_user_sees(name: str) -> None:
    """Text is wrong where tokens are; a value that is right by luck is no harm."""
    findings = judged(name).result.findings
    kinds, said = {one.kind for one in findings}, found(name).account.impact
    assert ("wrong from here on" in said) <= (FindingKind.LOSS in kinds)
    assert ("The user sees it" in said) == (FindingKind.LOSS in kinds)
    alone = msgspec.structs.replace(
        next(one for one in findings if one.kind is not FindingKind.CONFLICT),
        kind=FindingKind.OWNERSHIP,
        request="A",
        buffer="b",
        actual=["B", 3],
    )
    lucky = (
        "Request A is served with the value of request B from b, which is equal to its own by luck"
    )
    assert impact_of([alone], None, None) == f"{lucky}: no value that was compared is wrong."


def test_a_wrong_value_without_effect_says_so() -> None:
    findings = judged("accepted-copy-after-row-move").result.findings
    unseen = [one for one in findings if one.kind is not FindingKind.LOSS]
    said = impact_of(unseen, None, None)
    assert said.startswith("Request C goes on with the accepted count of request A: it reads")
    assert said.endswith("of column 0. No token that was delivered in this run is wrong.")


def test_rows_are_told_as_requests() -> None:
    (place,) = found("accepted-copy-after-row-move").account.places
    assert place.text == "row 1: request C in step 3, nobody in step 4 (C moved to row 0)"
    (block,) = found("recycle-in-flight").account.places
    assert block.text == "block 7: request A in step 5, request B in step 6"


def test_a_held_operation_is_the_cause_in_its_own_step() -> None:
    """Other steps race on the same buffer, and earlier: the hold says which is meant."""
    first = found("pinned-guard-too-narrow").account.first
    assert first is not None and first.name == "h2d:block_table@4"


@pytest.mark.parametrize(
    ("name", "edge"),
    [
        ("output-copy-lifetime", "output-landed"),
        ("accepted-copy-after-row-move", "accepted-landed"),
        ("recycle-in-flight", "load-after-release"),
    ],
)
def test_the_edge_is_the_pairs_own(name: str, edge: str) -> None:
    named = found(name).account.edge
    assert named is not None and named.name == edge


def test_the_first_divergence_is_marked_once() -> None:
    for name in ("accepted-copy-after-row-move", "slot-vs-row-index", "row-swap-alias"):
        compared = material(name).comparison
        assert compared is not None
        roles = [cell.role for line in compared.lines for cell in line.cells]
        assert roles.count("first") == 1, name
        shares = [s for heat in compared.heats for s in heat.shares if s is not None]
        assert shares and all(0.0 <= share <= 1.0 for share in shares)


def test_states_differ_only_from_the_divergence_on() -> None:
    compared = material("slot-vs-row-index").comparison
    assert compared is not None
    at = compared.steps.index(4)
    assert {heat.name for heat in compared.heats} >= {"state.0", "conv.0", "kv.2"}
    for heat in compared.heats:
        assert not any(heat.shares[:at]) and heat.shares[at], heat.name


def test_schedules_beside_it_pass_and_fail_by_one_hold() -> None:
    stops = material("accepted-copy-after-row-move", is_swept=True).stops
    assert [stop.goes_wrong for stop in stops] == [False, False, False, True]
    assert [len(stop.holds) for stop in stops] == [0, 1, 1, 1]
    landed = [stop.timeline.first.landed for stop in stops]
    assert landed == sorted(landed)
    assert landed[-1] > stops[-1].timeline.second.at > landed[-2]
