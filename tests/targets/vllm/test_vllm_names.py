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


def test_kernels_are_told_by_how_many_bytes_they_read_and_write() -> None:
    listener = EngineListener()
    listener.begin()
    for read in (8, 16):
        assert listener.kind("kernel verify", ((0, read), (32, 36)), ((64, 68),)) == "kernel verify"
    listener.kind("add_", ((0, 8),), ((0, 8),))
    assert listener.footprints() == {
        "verify: bytes read": [12, 20],
        "verify: bytes written": [4, 4],
    }
    listener.begin()
    assert listener.footprints() == {}
