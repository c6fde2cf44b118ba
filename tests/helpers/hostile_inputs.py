"""Valid inputs of every loader, broken: what a fuzzer feeds them.

An input begins as what a loader reads, as data; a few things in it are replaced, repeated, left out
or nested; then it is written as TOML, JSON or text, and that text may be cut, doubled or sprinkled.
Whatever comes out, a loader takes it or refuses it in words that can be printed.

`make hostile` goes on for longer than a test does: it ends at the first input that is not refused
in words within 2 s.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from broken_data import broken, write_json, write_toml
from racegate.device.chooser import HoldChooser
from racegate.explore.swarm import Pick, one_of
from racegate.faults.catalogue import find_fault
from racegate.history.edge import Edge
from racegate.history.finding import FindingKind, Verdict
from racegate.history.observe import Boundary
from racegate.history.schedule import parse_holds, parse_schedule
from racegate.history.witness import Operation, RecordedFinding, checksum_of, load_witness
from racegate.interpose.outcome import Observation
from racegate.jobs.campaign import Campaign
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.pools.time_limit import TimeLimitError, limited_time
from racegate.jobs.selection import nothing_selected, parse_selection
from racegate.measure.ab.running import parse_share
from racegate.measure.evaluation.matrix import load_matrix
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import explicit, load
from racegate.scenario.request_log import scenario_file_for
from racegate.scenario.spec import OwnScenario, ScenarioBase
from racegate.scenario.untrusted.console import PrintableConsole, line
from racegate.scenario.untrusted.files import json_text
from racegate.scenario.untrusted.text import MESSAGE_LENGTH_MAX, message
from racegate.targets.adapters.conformance import KIT
from racegate.targets.adapters.reader import HistoryError, HistoryReader
from racegate.targets.adapters.wire import (
    SCHEMA,
    Answer,
    HelloAnswer,
    Offer,
    decode_line,
    parse_plant,
)
from racegate.targets.program.workflow.suppressions import load_suppressions
from racegate.targets.program.workflow.witness import (
    PROGRAM_WITNESSES,
    ProgramSubject,
    ProgramWitness,
)
from racegate.targets.vllm.witness import VLLM_WITNESSES

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 2.0  # of the processor
WALL_SECONDS_MAX = 60.0  # or it waits for something

# What a loader may say to an input that it does not take.
REFUSALS = (
    BadInputError,
    HistoryError,
    msgspec.DecodeError,  # of a line of an engine, as are the next two
    UnicodeDecodeError,
    RecursionError,
)
LINE_REFUSALS = REFUSALS[2:]


@dataclass(frozen=True, slots=True)
class Loader:
    """make: an input; load: takes it, or refuses it; what it gives is what was loaded"""

    name: str
    make: Callable[[Pick], bytes]
    load: Callable[[bytes, Path], object]


def _read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


SCRIPTS = tuple(
    _read_toml(ROOT / "scenarios" / f"{name}.toml")
    for name in ("two_row_cycle", "finish_and_condense", "prompt_k_plus_one", "trace_azure")
)
WITNESSES = tuple(
    _read_json(ROOT / "scenarios" / "witnesses" / f"{name}.witness.json")
    for name in ("accepted-read-before-copy", "row-swap-alias", "draft-handoff-latest-wins")
)
LOG = (ROOT / "scenarios" / "traces" / "azure_conv_2023_200.csv").read_text().splitlines()[:12]
SEEN = Observation(name="tokens", digest="0" * 64, preview="[1, 2]")
SIDE = Operation(name="copy train.py step 1", lane="stream 7", is_write=True)
PROGRAM = msgspec.to_builtins(
    ProgramWitness(
        title="counts: copy on stream 7, read on host",
        subject=ProgramSubject(argv=("train.py", "--steps", "2")),
        holds=("copy train.py step 1 until forced",),
        polls=1,
        signature="0123456789ab",
        finding=RecordedFinding(
            kind=FindingKind.CONFLICT,
            buffer="counts",
            operations=(SIDE, SIDE),
            edge="wait behind train.py:7",
        ),
        verdict=Verdict.DIVERGENT,
        expected=(SEEN,),
        actual=(SEEN,),
        ending="",
        versions={"torch": "2.13.0"},
    )
)
VLLM = {
    "schema": "racegate.vllm-witness/1",
    "release": "0.11.0",
    "runner": "v1",
    "mode": "align",
    "scenario": WITNESSES[0]["scenario"],
    "holds": [["copy_ counts 3", "forced"]],
    "effect": "wrong",
    "wrong": ["step 3: counts: 1 used, 2 true"],
    "torch": "2.9.0",
}
MATRIX = _read_json(ROOT / "reports" / "faults" / "matrix.json")
MATRIX = MATRIX | {"rows": MATRIX["rows"][:1]}
SPEC = CampaignSpec(seed=0, fault=None, holds_each=0)


def _state() -> dict[str, Any]:
    """Of a campaign that has not begun."""
    with TemporaryDirectory() as folder:
        found: dict[str, Any] = msgspec.to_builtins(Campaign(SPEC, Path(folder)).state(1.5))
    return found


STATE = _state() | {"verdicts": {"PROVED": 3}, "exercised": {"gaps": 2}}
SUPPRESSIONS = {"suppression": [{"signature": "0123456789ab", "reason": "it is read only once"}]}
HOLDS = (
    "d2h:accepted_counts@3 until host:condense@4",
    "output/*@A.0[2:] until forced",
    "*/*:*sample*d@* until kernel:layer.0@4#2",
    "kernel:verify@B.11 until h2d:prev_positions@12",
)
EXPRESSIONS = ("align and not (offload or graph)", "not condense", "three-row or (stop and token)")
OPTIONS = ("0:2", "3:12", "2/4", "drop_edge:accepted-landed", "wrong_row", "stale-placeholder-leak")
EDGE = Edge(name="landed", before="the copy", after="the read", buffers=("x",), reason="stale")
HELLO = HelloAnswer(
    to=0,
    schema=SCHEMA,
    engine="e",
    version="1",
    lanes=("copy", "compute"),
    offers=(Offer.OBSERVATIONS,),
    boundaries=(Boundary.SCHEDULED,),
    edges=(EDGE,),
)
ACCESS = {"buffer": "x", "rows": [[0, 4], 5], "write": True}
LINES = (
    {"is": "buffer", "name": "x", "rows": 8, "storage": "m"},
    {"is": "op", "name": "d2h:x@1", "lane": "copy", "accesses": [ACCESS]},
    {"is": "host", "name": "host:read@2", "accesses": [{"buffer": "x"}]},
    {"is": "record", "event": "landed", "lane": "copy"},
    {"is": "wait", "edge": "landed", "event": "landed", "lane": "host"},
    {"is": "query", "name": "poll", "event": "landed"},
    {"is": "observation", "step": 1, "boundary": "scheduled", "values": {"plan": [["A", 1, 2]]}},
    {"is": "ran", "to": 1, "delivered": {"A": [1, 2]}, "finished": {"A": "stop"}, "steps": 3},
)  # fmt: skip


def _of(seeds: tuple[Any, ...], write: Callable[[Any], str]) -> Callable[[Pick], bytes]:
    return lambda pick: broken(one_of(pick, seeds), pick, write)


def _sealed(data: Any) -> str:
    """JSON of a witness, whose checksum fits as long as it can be made."""
    with suppress(TypeError, ValueError, RecursionError):
        data = {**data, "checksum": checksum_of(data)}
    return write_json(data)


def _file(load_path: Callable[[Path], object], name: str, content: bytes, folder: Path) -> object:
    path = folder / name
    path.write_bytes(content)
    return load_path(path)


def _log(path: Path) -> OwnScenario:
    file = scenario_file_for(path, rows="0:10", scale=32, step_ms=500, seed=1)
    return explicit(file, source=str(path), folder=path.parent)


def _campaign(path: Path) -> object:
    return Campaign(SPEC, path.parent).done


def _lines(content: bytes, folder: Path) -> object:
    reader = HistoryReader(HELLO, KIT)
    for text in content.split(b"\n"):
        said = decode_line(text)
        if not isinstance(said, Answer):
            reader.take(said)
    return reader.trace()


def _held(content: bytes, folder: Path) -> object:
    text = content.decode("utf-8", "surrogateescape")
    schedule = parse_schedule([text])
    chooser = HoldChooser(schedule)
    chooser.ticket("output", "d2h:accepted_counts@3")
    chooser.reach("host:condense@4")
    return schedule.texts(), parse_holds([text])


def _selected(content: bytes, folder: Path) -> object:
    text = content.decode("utf-8", "surrogateescape")
    selects = parse_selection(text)
    names = ["three-row-cycle", "stop-token", "a" * 200]
    if not any(map(selects, names)):
        raise nothing_selected(text, names)
    return text


def _option(content: bytes, folder: Path) -> object:
    """What no option takes, all of them refuse."""
    text = content.decode("utf-8", "surrogateescape")
    error: BadInputError | None = None
    readers: tuple[Callable[[str], object], ...] = (parse_share, parse_plant, find_fault)
    for read in (*readers, partial(_rows, folder)):
        try:
            return read(text)
        except BadInputError as refused:
            error = refused
    assert error is not None
    raise error


def _rows(folder: Path, text: str) -> object:
    path = folder / "option.csv"
    path.write_text("\n".join(LOG) + "\n", encoding="utf-8")
    file = scenario_file_for(path, rows=text, scale=32, step_ms=500, seed=1)
    return explicit(file, source=text, folder=folder)


def _dumped(data: Any) -> str:
    return data if isinstance(data, str) else write_json(data)


def _joined(data: Any) -> str:
    """Lines of JSON, or of text."""
    return "\n".join(map(_dumped, data)) if isinstance(data, list) else _dumped(data)


LOADERS = tuple(
    Loader(name, make, load)
    for name, make, load in (
        ("scenario", _of(SCRIPTS, write_toml), partial(_file, load, "a.toml")),
        ("log", _of((LOG,), _joined), partial(_file, _log, "a.csv")),
        ("witness", _of(WITNESSES, _sealed), partial(_file, load_witness, "a.witness.json")),
        ("program", _of((PROGRAM,), _sealed), partial(_file, PROGRAM_WITNESSES.load, "a.json")),
        ("vllm", _of((VLLM,), write_json), partial(_file, VLLM_WITNESSES.load, "v.json")),
        (
            "suppressions",
            _of((SUPPRESSIONS,), write_toml),
            partial(_file, load_suppressions, "s.toml"),
        ),
        ("matrix", _of((MATRIX,), write_json), partial(_file, load_matrix, "m.json")),
        ("campaign", _of((STATE,), write_json), partial(_file, _campaign, "campaign.json")),
        ("engine", _of((list(LINES),), _joined), _lines),
        ("hold", _of(HOLDS, _dumped), _held),
        ("selection", _of(EXPRESSIONS, _dumped), _selected),
        ("option", _of(OPTIONS, _dumped), _option),
    )
)


def feed(loader: Loader, content: bytes, folder: Path) -> bool:
    """One input: whether it was taken. What is said of it, or shown of it, can be printed."""
    try:
        taken = loader.load(content, folder)
    except LINE_REFUSALS as error:
        assert loader.name == "engine" or isinstance(error, BadInputError), repr(error)
        return False
    except REFUSALS as error:
        _check_text(message(f"racegate: {error}"))
        return False
    found = taken if isinstance(taken, ScenarioBase) else getattr(taken, "scenario", None)
    if isinstance(found, ScenarioBase):
        _check_text(json_text({"title": found.title, "origin": found.origin}))
        _check_shown(found)
    return True


def _check_shown(scenario: ScenarioBase) -> None:
    with io.StringIO() as shown:
        console = PrintableConsole(width=110)
        console.file = shown
        console.print(scenario.title, line((scenario.origin, "bold")), scenario.name)
        _check_text(shown.getvalue())


def _check_text(text: str) -> None:
    assert all(map(str.isprintable, text.split("\n"))), text
    assert len(text) < 5 * MESSAGE_LENGTH_MAX


@contextmanager
def told_of_an_error(what: str, content: bytes) -> Iterator[None]:
    """Inside, an error says which input it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{what}: {content[:500]!r}")
        raise


@contextmanager
def limited(what: str) -> Iterator[None]:
    """Inside, so much time of the processor and no more, however busy the machine is."""

    def ring(number: int, frame: object) -> None:
        raise TimeLimitError(f"{what}: more than {SECONDS_MAX:g} s of the processor")

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        with limited_time(WALL_SECONDS_MAX, what):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def main() -> None:
    """Many inputs, a line per loader at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Go on with this one.")
    given = parser.parse_args()
    sys.set_int_max_str_digits(4300)
    taken: Counter[str] = Counter()
    longest: dict[str, float] = {}
    started = time.monotonic()
    fed: Counter[str] = Counter()
    with (
        TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place,
        suppress(KeyboardInterrupt),  # what was fed until then is told
    ):
        for number in range(given.first, given.inputs):
            loader = LOADERS[number % len(LOADERS)]
            content = loader.make(random.Random(f"{given.seed}:{number}").randrange)
            began = time.process_time()
            what = f"input {number} of seed {given.seed}, {loader.name}"
            with told_of_an_error(what, content), limited(what):
                taken[loader.name] += feed(loader, content, Path(place))
            fed[loader.name] += 1
            longest[loader.name] = max(longest.get(loader.name, 0), time.process_time() - began)
            if number % 50_000 == 0:
                print(f"{number} inputs, {time.monotonic() - started:.0f} s", flush=True)
    print("| loader | inputs | taken | longest, ms |\n|---|---:|---:|---:|")
    for loader in LOADERS:
        counts = f"{fed[loader.name]} | {taken[loader.name]}"
        print(f"| {loader.name} | {counts} | {1e3 * longest.get(loader.name, 0):.0f} |")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.monotonic() - started
    print(f"\n{fed.total()} inputs in {seconds:.0f} s, {memory:.0f} MiB at most")


if __name__ == "__main__":
    main()
