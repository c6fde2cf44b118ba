"""Engines that lie, flood, hang, grow or die: said as such, with their last words, and never a hang
of racegate.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import hostile_engine
from racegate.history.finding import FindingKind, Verdict, exit_code
from racegate.history.schedule import parse_schedule
from racegate.scenario.spec import OwnScenario, Request
from racegate.targets.adapters.client import Adapter, AdapterRun, EngineStoppedError
from racegate.targets.adapters.errors import AdapterError, CommandError, EngineLostError, LossKind
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.process import TICK_S, EngineProcess, Limits, resident_bytes
from racegate.targets.adapters.wire import RefusedAnswer

SCENARIO = OwnScenario(
    name="one",
    title="one request",
    requests=(Request(name="A", arrive=0, prompt=(1, 2), max_tokens=3),),
)
PATIENT = Limits(timeout_s=60, memory_mib=2048)
HASTY = Limits(timeout_s=0.5, memory_mib=2048)


def hostile(how: str, limits: Limits = PATIENT) -> Adapter:
    return Adapter([sys.executable, hostile_engine.__file__, how], limits=limits)


def lost(how: str, limits: Limits) -> EngineLostError:
    """How the run of an engine that does not answer was lost."""
    with hostile(how, limits) as adapter:
        told = adapter.run(SCENARIO)
    assert isinstance(told, AdapterRun)
    assert isinstance(told.run.stopped, EngineLostError)
    return told.run.stopped


NOT_BELIEVED = {
    "garbage": "line 1 is 'INFO 12:00:01 loading weights'.*Standard output is for the protocol",
    "binary": "line 1 is .*Standard output is for the protocol only",
    "empty_line": "line 1 is ''",
    "huge_line": r"a line of more than 2 MiB, which begins with b'\[{80}'",
    "unknown_field": "unknown field `surprise`",
    "unknown_line": "nonsense",
    "wrong_id": "line 1 answers question 3, asked was 2",
    "wrong_answer": "line 1 is no answer to 'run'",
    "other_requests": "have to name every request of the scenario",
    "other_finish": "a request finished by 'done'",
    "holds_unsaid": "what became of each hold",
    "contradiction": "line 1 .*the lane 'plan', which the engine has not introduced",
    "answers_twice": "although nothing was asked|line 1 answers question 2, asked was 3",
    "chatter": "more than 2000 lines for one question",
    "no_hello": r"(?s)asked 'hello'.*ended with code 1.*ModuleNotFoundError: No module named",
    "other_schema": "speaks 'racegate.adapter/9', this racegate 'racegate.adapter/1'",
    "senseless": "its introduction: it names the lane 'copy' twice",
    "history_first": "line 1 is of a history, and none was asked for",
}


@pytest.mark.parametrize("how", NOT_BELIEVED)
def test_what_cannot_be_believed(how: str) -> None:
    limits = Limits(timeout_s=60, line_mib=2, lines=2000)
    schedule = parse_schedule(["a@1 until forced"] if how == "holds_unsaid" else [])
    with (
        hostile(how, limits) as adapter,
        pytest.raises(AdapterError, match=NOT_BELIEVED[how]) as caught,
    ):
        adapter.run(SCENARIO, schedule=schedule)
    assert "hostile_engine.py" in str(caught.value)


LOST: dict[str, tuple[Limits, LossKind, str]] = {
    "exit_midway": (PATIENT, LossKind.EXITED, "ended with code 7 before it answered"),
    "exit_midline": (
        PATIENT,
        LossKind.EXITED,
        "code 0 before it answered, in the middle of a line",
    ),
    "killed": (PATIENT, LossKind.EXITED, "was killed by SIGSEGV"),
    "stderr_flood": (PATIENT, LossKind.EXITED, "ended with code 9"),
    "hang": (HASTY, LossKind.SILENT, "has not answered within 0.5 s"),
    "hang_midline": (HASTY, LossKind.SILENT, "has not answered within 0.5 s"),
    "hang_closed": (PATIENT, LossKind.EXITED, "closed its standard output and goes on"),
    "hang_deaf": (HASTY, LossKind.SILENT, "has not answered"),
    "hog": (Limits(memory_mib=150), LossKind.MEMORY, "MiB of memory, 150 are allowed"),
    "hog_in_child": (Limits(memory_mib=150), LossKind.MEMORY, "MiB of memory, 150 are allowed"),
}


@pytest.mark.parametrize("how", LOST)
def test_a_lost_engine(how: str) -> None:
    limits, kind, why = LOST[how]
    error = lost(how, limits)
    assert error.kind is kind
    assert re.search(why, error.why)


def test_last_words() -> None:
    assert "illegal memory access" in str(lost("exit_midway", PATIENT))
    assert "waiting for a latch" in str(lost("hang", HASTY))
    flood = lost("stderr_flood", PATIENT)
    assert len(str(flood)) < 10_000
    assert "line 49999" in str(flood)


def test_address_space() -> None:
    """Python sees the limit itself, and says so."""
    error = lost("hog", Limits(address_mib=256, memory_mib=4096))
    assert error.kind is LossKind.EXITED
    assert "MemoryError" in str(error)


def test_nothing_outlives_a_hang() -> None:
    error = lost("hang_deaf", Limits(timeout_s=5))
    (child,) = re.findall(r"child (\d+)", str(error))
    while resident_bytes(int(child)):  # killed, and not gone at once
        os.sched_yield()


def test_closing_ends_an_engine_that_does_not_leave() -> None:
    command = [sys.executable, "-c", "import time\nwhile True: time.sleep(60)"]
    process = EngineProcess(command, limits=PATIENT)
    process.close()
    assert resident_bytes(process.pid) == 0


def test_a_flood_of_standard_error_stops_nobody() -> None:
    with hostile("answer_then_flood") as adapter:
        told = adapter.run(SCENARIO)
    assert isinstance(told, AdapterRun) and told.run.result is not None


def test_speaking_unasked() -> None:
    """What is said behind an answer belongs to no question."""
    with (
        hostile("speaks_unasked") as adapter,
        pytest.raises(AdapterError, match="although nothing was asked"),
    ):
        adapter.run(SCENARIO)
        adapter.plain(SCENARIO)


def test_started_again_it_has_to_be_the_same() -> None:
    with hostile("changes") as adapter:
        assert adapter.hello.engine == "hostile"
        adapter.restart()
        with pytest.raises(AdapterError, match="introduces itself differently"):
            adapter.run(SCENARIO)


def test_a_lost_engine_is_started_again() -> None:
    with hostile("exit_midway") as adapter:
        for _ in range(2):
            told = adapter.run(SCENARIO)
            assert isinstance(told, AdapterRun) and isinstance(told.run.stopped, EngineLostError)


@pytest.mark.parametrize("command", [[], ["/no/such/engine"], [str(Path(__file__).parent)]])
def test_a_command_that_cannot_be_started(command: Sequence[str]) -> None:
    with pytest.raises(CommandError, match=r"no command|cannot start the engine"):
        assert Adapter(command).hello


def test_a_stop_and_a_refusal() -> None:
    with hostile("stops") as adapter:
        told = adapter.run(SCENARIO)
        assert isinstance(told, AdapterRun) and isinstance(told.run.stopped, EngineStoppedError)
    with hostile("refuses") as adapter:
        assert adapter.run(SCENARIO) == RefusedAnswer(to=2, reason="no prefix cache")


VERDICTS = {
    "exit_midway": (PATIENT, Verdict.DIVERGENT, FindingKind.CRASH),
    "killed": (PATIENT, Verdict.DIVERGENT, FindingKind.CRASH),
    "dies_behind_its_answer": (PATIENT, Verdict.DIVERGENT, FindingKind.CRASH),
    "stops": (PATIENT, Verdict.DEADLOCK, FindingKind.DEADLOCK),
    "hang": (HASTY, Verdict.INCONCLUSIVE, None),
    "hog": (Limits(memory_mib=150), Verdict.INCONCLUSIVE, None),
    "refuses": (PATIENT, Verdict.INCONCLUSIVE, None),
}


@pytest.mark.parametrize("how", VERDICTS)
def test_verdicts(how: str) -> None:
    """A crash is the engine's own; what a limit ended may be slow or large, and nothing more."""
    limits, verdict, kind = VERDICTS[how]
    with hostile(how, limits) as adapter:
        judged = AdapterJudge(adapter, SCENARIO).judge()
    assert judged.verdict is verdict
    assert [finding.kind for finding in judged.findings] == ([kind] if kind else [])
    assert exit_code([verdict]) == (1 if kind else 4)
    if kind is None:
        (reason,) = judged.unmet
        assert reason


def test_nobody_waits_longer_for_an_answer_than_is_allowed() -> None:
    """Not even until the next look at its memory."""
    process = EngineProcess([sys.executable, "-c", "input()"], limits=PATIENT)
    asked, select, waits = time.monotonic(), process._selector.select, []

    def noted(wait_s: float) -> object:
        waits.append(wait_s)
        return select(wait_s)

    process._selector = SimpleNamespace(select=noted, close=process._selector.close)  # type: ignore[assignment]
    with pytest.raises(EngineLostError):
        process.line(asked, TICK_S / 4)
    process.close()
    assert max(waits, default=0.0) <= TICK_S / 4
