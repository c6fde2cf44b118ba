"""Operations of an engine are called by function, buffer and count."""

from __future__ import annotations

from types import SimpleNamespace

from bare_session import engine_session
from racegate.history.schedule import Hold
from racegate.interpose.device.queue import Queue
from racegate.interpose.outcome import Plan
from racegate.interpose.program.hostmode import HostMode
from racegate.interpose.program.install import watching
from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.inside.listener import EngineListener
from small_engine import SmallEngine, Wait


def test_a_name_has_no_line_and_no_file() -> None:
    findings = SmallEngine(Wait.BEHIND).run(Plan()).findings
    assert {f.first.label for f in findings} == {"d2h counts.cpu@_step#1"}
    assert {f.second.label for f in findings} == {
        "host read counts.cpu@move_row#1",
        "host write counts.cpu@move_row#1",
    }


def test_names_are_the_same_in_the_next_run() -> None:
    engine = SmallEngine(Wait.BEHIND)
    first, second = engine.run(Plan()), engine.run(Plan())
    assert [f.pairs for f in first.findings] == [f.pairs for f in second.findings]


def test_a_helper_copies_on_behalf_of_its_caller() -> None:
    stack = (("u.py", 3, "copy_to_gpu"), ("r.py", 9, "_prepare_inputs"))
    assert EngineListener().label("h2d ids", stack) == "h2d ids@_prepare_inputs#1"


def test_counts_start_again_with_a_run() -> None:
    recorder = EngineListener()
    stack = (("r.py", 9, "step"),)
    recorder.label("h2d ids", stack)
    recorder.begin()
    assert recorder.label("h2d ids", stack) == "h2d ids@step#1"


def test_memory_without_a_name_is_temporary() -> None:
    listener = EngineListener()
    listener.name_buffers([(100, 200, "ids")])
    assert [listener.buffer_at(a) for a in (99, 100, 199, 200)] == [
        "temporary", "ids", "ids", "temporary",
    ]  # fmt: skip


def test_the_suffix_of_a_request_is_vllms_own() -> None:
    assert name_of("A-1b-0123abcd") == "A-1b"
    assert name_of("A") == "A"


def test_torch_on_pinned_memory_is_seen_in_a_run_that_is_recorded() -> None:
    """The device was entered before, when nothing was."""
    session = engine_session().session
    installed = SimpleNamespace(session=session, kernels=SimpleNamespace(direct={}))
    assert isinstance(watching(installed), HostMode)
    session.begin(Queue(), is_recording=False)
    assert not isinstance(watching(installed), HostMode)
    session.begin(Queue((Hold(op="d2h*"),)), is_recording=False)
    assert isinstance(watching(installed), HostMode)


def test_operations_are_told_by_the_stream_that_they_are_asked_for_on() -> None:
    """Whether it is the one on which the run began: what the others are called is nobody's."""
    current = [7]
    listener = EngineListener(stream_of=lambda: current[0])
    listener.begin()
    stack = (("runner.py", 3, "Runner.copy"),)
    listener.label("d2h counts", stack)
    listener.label("h2d ids", stack)
    current[0] = 9
    for kind in ("d2h counts", "d2h tokens", "host read (numpy) tokens", "observe drafts"):
        listener.label(kind, stack)
    assert listener.streams() == {
        "d2h counts@copy": ["another stream", "the stream of the run"],
        "h2d ids@copy": ["the stream of the run"],
        "d2h tokens@copy": ["another stream"],
    }
    listener.begin()
    assert listener.streams() == {}


def test_kernels_are_told_by_which_bytes_of_tensors_they_read_and_write() -> None:
    tensors = [(96, 104), (104, 128)]
    listener = EngineListener(
        tensor_of=lambda at: next((one for one in tensors if one[0] <= at < one[1]), None)
    )
    listener.begin()
    listener.name_buffers([(32, 64, "ids")])
    # Of the buffer, of two tensors that lie side by side, and of memory that nobody knows.
    for first in (32, 36):
        reads = ((0, 8), (first, 40), (100, 108))
        assert listener.kind("kernel verify", reads, ((48, 52),)) == "kernel verify"
    listener.kind("add_", ((0, 8),), ((0, 8),))
    assert listener.kind("h2d", ((32, 40),), ((104, 112),)) == "h2d ids"
    assert listener.kind("h2d", ((96, 104),), ((32, 40),)) == "h2d temporary"
    assert listener.footprints() == {
        "verify: bytes read": [
            ["0..4", "0..8", "4..8", "8 elsewhere"],
            ["0..4", "4..8", "4..8", "8 elsewhere"],
        ],
        "verify: bytes written": [["16..20"], ["16..20"]],
        "h2d ids: bytes read": [["0..8"]],
        "h2d ids: bytes written": [["0..8"]],
    }
    listener.begin()
    assert listener.footprints() == {}


def test_bytes_in_several_places_are_told_apart_from_as_many_others() -> None:
    def told(*reads: tuple[int, int]) -> str:
        listener = EngineListener(tensor_of=lambda _: (0, 64))
        listener.begin()
        listener.kind("kernel gather", reads, ())
        return listener.footprints()["gather: bytes read"][0][0]

    assert told((0, 8), (8, 16)) == told((0, 16)) == "0..16"
    assert told((0, 4), (8, 12), (20, 24)).startswith("0..24: 12 in 3 places, ")
    assert told((0, 4), (8, 12), (20, 24)) != told((0, 4), (12, 16), (20, 24))
