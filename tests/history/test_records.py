"""What a history is made of beside its events: breakages, codes, counts, files, first places."""

from __future__ import annotations

import os
import signal
from inspect import getsourcelines
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.history import breakage
from racegate.history.breakage import Breakage, Caught, breakage_of
from racegate.history.exit_code import INTERRUPTED, UNREAD, ExitCode, code_of_signal
from racegate.history.finding import Finding, FindingKind, Verdict, request_of, signature_of
from racegate.history.gates.results import gated
from racegate.history.outcome import Checked
from racegate.history.replayed import ReplayOutcome, worst_of
from racegate.history.run import EngineResult, Run
from racegate.history.stats import _starved_since, cut_off
from racegate.history.trace import Trace
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.files import check_writable, write_whole


def outer_of_two() -> None:
    """Breaks in a function of ours that another one of ours calls."""
    finished = {"A": "unfinished"}
    result = EngineResult(delivered={}, finished=finished, steps=7, counters={}, unmet_events=())
    broken: Any = SimpleNamespace(result=result, observations=None)
    cut_off(OwnScenario(name="s", title="", requests=()), broken)


class TestBreakages:
    def test_it_says_at_what_where_and_how_it_is_shown_again(self) -> None:
        whole = Breakage(at="judging", error="KeyError: 3", place="a.py:7", command="racegate run")
        assert whole.text.startswith("judging: KeyError: 3 (a.py:7). ")
        assert whole.text.endswith("; again: racegate run")
        bare = Breakage(at="judging", error="KeyError: 3").text
        assert bare.startswith("judging: KeyError: 3. ") and "again" not in bare and "(" not in bare

    @pytest.mark.parametrize("length", [0, 1, 500, 501])
    def test_a_message_is_cut(self, length: int) -> None:
        found = breakage_of(ValueError("x" * length), at="here")
        kept = "x" * min(length, 500)
        assert found.error == (f"ValueError: {kept}" if kept else "ValueError")

    def test_the_place_is_the_innermost_line_of_ours(self) -> None:
        with Caught("asking", command="racegate run") as caught:
            EngineResult.missing  # type: ignore[attr-defined]  # noqa: B018
        assert caught.breakage is not None
        assert (caught.breakage.at, caught.breakage.command) == ("asking", "racegate run")
        assert "test_records.py:" in caught.breakage.place
        with Caught("cutting off") as caught:
            outer_of_two()
        assert caught.breakage is not None
        lines, first = getsourcelines(_starved_since)
        file, _, line = caught.breakage.place.partition(":")
        assert file == "history/stats.py" and first <= int(line) < first + len(lines)

    def test_bad_input_goes_through_unless_it_may_not(self) -> None:
        with pytest.raises(BadInputError), Caught("reading") as caught:
            raise BadInputError("bad")
        assert caught.breakage is None
        with Caught("reading", through=()) as caught:
            raise BadInputError("bad")
        assert caught.breakage is not None

    def test_an_error_that_came_through_nothing_has_no_place(self) -> None:
        assert breakage_of(ValueError("x"), at="here").place == ""
        assert breakage.PACKAGES[0] == "racegate"


def test_codes_are_what_shells_have_for_the_signals() -> None:
    assert (INTERRUPTED, UNREAD) == (130, 141)
    assert code_of_signal(signal.SIGTERM) == 143


def test_what_is_not_said_is_not_so() -> None:
    result = EngineResult(delivered={}, finished={}, steps=0, counters={}, unmet_events=())
    assert result.in_flight == 0
    checked = Checked(cases=(), exit_code=0)
    assert checked.failing == () and not checked.has_baseline


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, "1 more did not"), (9, "5 more did not")])
def test_a_few_requests_that_did_not_end_are_named(count: int, more: str) -> None:
    finished = {f"R{number}": "unfinished" for number in range(count)}
    result = EngineResult(
        delivered={}, finished=finished, steps=7, counters={}, unmet_events=(), in_flight=0
    )
    trace = Trace(lanes=("host",), events=(), holds=())
    scenario = OwnScenario(name="s", title="", requests=())
    run = Run(trace=trace, observations=(), edges=(), result=result, stopped=None, seconds=0.0)
    (said,) = cut_off(scenario, run)
    assert [f"request R{n} did not end" in said for n in range(count)] == [
        n < 4 for n in range(count)
    ]
    assert more in said and "in flight" not in said and ("more" in said) == bool(more)


class TestFiles:
    def test_whole_or_what_was_there_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "found.json"
        write_whole(path, b"before")
        assert path.read_bytes() == b"before"
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", _refuse)
            with pytest.raises(OSError, match="no space"):
                write_whole(path, b"after")
        assert path.read_bytes() == b"before"
        assert os.listdir(tmp_path) == ["found.json"], "nothing is left beside it"

    def test_a_link_stays_one_and_a_pipe_is_written_to(self, tmp_path: Path) -> None:
        real, link = tmp_path / "real", tmp_path / "link"
        link.symlink_to(real)
        write_whole(link, b"x")
        assert link.is_symlink() and real.read_bytes() == b"x"
        write_whole(Path(os.devnull), b"x")
        assert Path(os.devnull).is_char_device()

    def test_a_place_is_tried_and_left_as_it_was(self, tmp_path: Path) -> None:
        check_writable(tmp_path / "new")
        assert os.listdir(tmp_path) == []
        for place, error in ((tmp_path, IsADirectoryError), (tmp_path / "no" / "x", OSError)):
            with pytest.raises(error):
                check_writable(place)


def _refuse(self: Path, target: object) -> None:
    raise OSError("no space")


def finding(kind: FindingKind, request: str | None) -> Finding:
    return Finding(kind=kind, signature=f"{kind}/{request}", message="", request=request)


def test_the_first_wrong_value_names_a_failure_and_its_request() -> None:
    race = finding(FindingKind.CONFLICT, "A")
    values = [finding(FindingKind.DIVERGENCE, name) for name in (None, "B", "C")]
    assert request_of([race, *values]) == "B"
    assert signature_of([race, *values]) == values[0].signature
    assert (request_of([race]), signature_of([race])) == (None, race.signature)
    assert (request_of([]), signature_of([])) == (None, None)


@given(st.lists(st.sampled_from(ReplayOutcome), min_size=1))
def test_the_worst_of_several_replays_counts(outcomes: list[ReplayOutcome]) -> None:
    """Reproduced is said only of a witness that every replay reproduced."""
    from_best = ["reproduced", "other signature", "nothing found", "not realised"]
    assert from_best.index(worst_of(outcomes)) == max(map(from_best.index, outcomes))


@pytest.mark.parametrize(("lost", "code"), [((), 0), ((1,), 3), ((0, 1, 2), 3)])
def test_one_target_that_is_lost_is_a_broken_harness_whatever_else_passed(
    lost: tuple[int, ...], code: int
) -> None:
    results: Any = tuple(
        SimpleNamespace(comparison=None, refused="", verdict=Verdict.PROVED, is_lost=place in lost)
        for place in range(3)
    )
    assert gated(results).exit_code == code


def test_exit_codes_are_those_that_ci_was_told() -> None:
    """Two names that mean the same are one code, and success is none of the others."""
    codes = {name: int(code) for name, code in ExitCode.__members__.items()}
    assert codes == {
        "CLEAN": 0,
        "FINDING": 1,
        "BAD_INPUT": 2,
        "BROKEN_HARNESS": 3,
        "NOT_MODELLED": 3,
        "INCONCLUSIVE": 4,
        "OTHER_SIGNATURE": 5,
        "NOTHING_FOUND": 6,
        "SCRIPT_FAILED": 7,
    }
    signals = {code_of_signal(number) for number in range(1, 65)}
    assert not signals & set(codes.values())
