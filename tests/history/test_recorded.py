"""What a recorder takes down of a run: each wait with the entry that it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from racegate.history.recorded.log import NOWHERE, LogKind, RecordedStep, StepRecorder

HERE = (("program.py", 3, "main"),)
MAIN, WORKER, STREAM, EVENT = 0, 1, 2, 9


def sources(log: StepRecorder) -> list[int]:
    return [step.source for step in log.steps if step.kind is LogKind.WAIT]


def test_an_operation_is_taken_down_with_its_place_and_its_bytes() -> None:
    log = StepRecorder()
    log.operation(MAIN, STREAM, "copy", HERE, [(0, 8)], [(16, 20), (30, 31)])
    log.access(MAIN, "read", HERE, [(0, 2)], [])
    assert log.steps == [
        RecordedStep(LogKind.OPERATION, STREAM, MAIN, "copy", "program.py:3", NOWHERE, 13),
        RecordedStep(LogKind.ACCESS, MAIN, MAIN, "read", "program.py:3", NOWHERE, 2),
    ]


def test_a_wait_is_for_the_last_record_and_for_the_last_operation() -> None:
    log = StepRecorder()
    log.wait_event(MAIN, STREAM, EVENT, HERE)
    log.wait_stream(MAIN, STREAM, HERE, "synchronize")
    assert sources(log) == [NOWHERE, NOWHERE]
    for _ in range(2):
        log.operation(MAIN, STREAM, "copy", HERE, [], [])
        log.record(MAIN, STREAM, EVENT, HERE)
    log.wait_event(MAIN, STREAM, EVENT, HERE)
    log.wait_stream(MAIN, STREAM, HERE, "synchronize")
    assert sources(log)[2:] == [5, 4]


def test_a_thread_takes_over_the_last_of_what_is_new_to_it() -> None:
    """Clocks are by lane, and shorter than that before a lane is known."""
    log = StepRecorder()
    log.hand_on(WORKER, (0, 1))
    log.hand_on(WORKER, (0, 2))
    log.hand_on(WORKER, (0, 3))
    log.take(MAIN, (), (0, 2))
    assert sources(log) == [1], "the third is not known yet"
    log.take(MAIN, (0, 2), (0, 2))
    log.take(MAIN, (0,), (0,))
    assert sources(log) == [1], "nothing is new"
    log.take(MAIN, (0, 2), (0, 3))
    assert sources(log) == [1, 2]


def test_a_range_that_one_thread_opens_another_closes() -> None:
    log = StepRecorder()
    outer, inner = log.open(MAIN, "outer"), log.open(WORKER, "inner")
    log.close(WORKER, outer)
    log.close(MAIN, inner)
    assert [(step.kind, step.thread, step.name, step.source) for step in log.steps] == [
        (LogKind.OPEN, MAIN, "outer", NOWHERE),
        (LogKind.OPEN, WORKER, "inner", NOWHERE),
        (LogKind.CLOSE, WORKER, "", 0),
        (LogKind.CLOSE, MAIN, "", 1),
    ]


def test_a_thread_takes_nothing_over_from_itself() -> None:
    log = StepRecorder()
    log.hand_on(MAIN, (1,))
    log.take(MAIN, (0,), (1,))
    assert sources(log) == []


def test_steps_of_threads_that_take_turns_in_the_middle_stand_under_their_own_numbers() -> None:
    log = StepRecorder()
    numbers = log._numbers

    def lose_the_turn() -> Iterator[int]:
        number, log._numbers = next(numbers), numbers
        log.hand_on(WORKER, (0, 1))
        yield number

    log._numbers = lose_the_turn()  # type: ignore[assignment]
    log.record(MAIN, STREAM, EVENT, HERE)
    log.wait_event(MAIN, MAIN, EVENT, HERE)
    log.take(MAIN, (), (0, 1))
    assert [step.kind for step in log.steps[:2]] == [LogKind.RECORD, LogKind.HAND_ON]
    assert sources(log) == [0, 1]


def test_a_thread_that_hands_on_for_the_first_time_while_another_takes_over_is_left_out() -> None:
    log = StepRecorder()
    log.hand_on(WORKER, (0, 1))

    class Clock(tuple[int, ...]):
        __slots__ = ()

        def __len__(self) -> int:
            log.hand_on(3, (0, 0, 0, 1))
            return super().__len__()

    log.take(MAIN, (), Clock((0, 1)))
    assert sources(log) == [0]


def test_a_clock_knows_nothing_of_a_lane_behind_its_end() -> None:
    log = StepRecorder()
    log.hand_on(WORKER, (0, 1))
    log.take(MAIN, (0,), (0, 1))
    assert sources(log) == [0]
