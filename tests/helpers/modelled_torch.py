"""Programs of the model as one PyTorch script, and what racegate's recorder makes of it."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from axioms import LEGACY, Kind, Program, Statement, edges_between, unordered
from racegate.history.finding import Race
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.targets.program.launch import DeviceServer, open_device
from racegate.targets.program.launch import Program as Script

Pair = tuple[int, int]  # of statements

_HEAD = '''"""Programs of the model of streams, one after the other."""
import ctypes
import torch

def blocking_stream():
    handle = ctypes.c_void_p()
    assert ctypes.CDLL(None).cudaStreamCreate(ctypes.byref(handle)) == 0
    return torch.cuda.ExternalStream(handle.value)

three = torch.tensor(3, device="cuda", dtype=torch.int32)
d0, d1 = (torch.zeros(16, dtype=torch.int32, device="cuda") for _ in range(2))
h0, h1 = (torch.zeros(16, dtype=torch.int32, pin_memory=True) for _ in range(2))
p0 = torch.zeros(16, dtype=torch.int32)
s0, s1, s2 = (torch.cuda.Stream() for _ in range(3))
b0, b1 = blocking_stream(), blocking_stream()
L = torch.cuda.default_stream()
'''
_TAIL = """
for program in PROGRAMS:
    e, f = torch.cuda.Event(), torch.cuda.Event()
    torch.cuda.synchronize()
    for statement in program:
        statement()
torch.cuda.synchronize()
"""


def drawn_for_torch(seed: int) -> Program:
    """Three to eight statements, with the legacy and blocking streams, pageable memory and waits
    for all; no queries, to which a program of torch is run with both answers.
    """
    draw = random.Random(seed)
    kinds = [kind for kind in Kind if kind is not Kind.QUERY]
    kinds += [*(Kind.FILL, Kind.UPLOAD, Kind.DOWNLOAD, Kind.RECORD, Kind.STREAM_WAIT) * 3]
    return tuple(_drawn(draw, draw.choice(kinds)) for _ in range(draw.randint(3, 8)))


def _drawn(draw: random.Random, kind: Kind) -> Statement:
    stream = draw.choice(("s0", "s0", "s1", "s1", "s2", "b0", "b1", LEGACY))
    event, device, host = draw.choice("ef"), draw.choice(("d0", "d1")), draw.choice(("h0", "h1"))
    named = {
        Kind.HOST_WRITE: {"target": draw.choice((host, "p0"))},
        Kind.HOST_READ: {"source": draw.choice((host, "p0"))},
        Kind.FILL: {"stream": stream, "target": device},
        Kind.COMPUTE: {"stream": stream, "target": "d0", "source": "d1"},
        Kind.UPLOAD: {"stream": stream, "target": device, "source": host},
        Kind.DOWNLOAD: {"stream": stream, "target": host, "source": device},
        Kind.STAGED_UPLOAD: {"stream": stream, "target": device, "source": "p0"},
        Kind.WAITED_DOWNLOAD: {"stream": stream, "target": "p0", "source": device},
        Kind.RECORD: {"stream": stream, "event": event},
        Kind.STREAM_WAIT: {"stream": stream, "event": event},
        Kind.HOST_WAIT: {"event": event},
        Kind.STREAM_SYNC: {"stream": stream},
        Kind.DEVICE_SYNC: {},
    }[kind]
    return Statement(kind=kind, **named)


def _call_of(one: Statement) -> str:
    """What a statement is in torch."""
    call = {
        Kind.HOST_WRITE: f"{one.target}.fill_(7)",
        Kind.HOST_READ: f"{one.source}.sum()",
        Kind.FILL: f"{one.target}.fill_(5)",
        Kind.COMPUTE: f"torch.add(three, {one.source}, alpha=3, out={one.target})",
        Kind.RECORD: f"{one.event}.record({one.stream})",
        Kind.STREAM_WAIT: f"{one.stream}.wait_event({one.event})",
        Kind.HOST_WAIT: f"{one.event}.synchronize()",
        Kind.STREAM_SYNC: f"{one.stream}.synchronize()",
        Kind.DEVICE_SYNC: "torch.cuda.synchronize()",
    }.get(one.kind, f"{one.target}.copy_({one.source}, non_blocking=True)")
    takes_current = one.stream and one.kind not in (
        Kind.RECORD,
        Kind.STREAM_WAIT,
        Kind.STREAM_SYNC,
    )
    return f"with torch.cuda.stream({one.stream}): {call}" if takes_current else call


def script_of(programs: Sequence[Program]) -> str:
    """One function for each statement at each place of a program, so that an operation's name says
    which it is; the count in the name says of which program.
    """
    names: dict[tuple[int, Statement], str] = {}
    bodies, lists = [], []
    for program in programs:
        for key in enumerate(program):
            if key not in names:
                names[key] = f"at{key[0]}_{len(names)}"
                bodies.append(f"def {names[key]}():\n    {_call_of(key[1])}\n")
        lists.append("[" + ", ".join(names[key] for key in enumerate(program)) + "],")
    return "\n".join([_HEAD, *bodies, "PROGRAMS = [", *lists, "]", _TAIL])


def shown(program: Program) -> str:
    """On one line."""
    return "; ".join(map(_call_of, program))


opened = open_device  # the device that the scripts run on


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorder says of a program, beside the model. program: its number"""

    program: int
    text: str


def found_pairs(
    programs: Sequence[Program], races: Sequence[Race]
) -> dict[int, set[tuple[int, int]]]:
    """By program the pairs of statements that the recorder calls unordered."""
    users: dict[str, list[tuple[int, int]]] = defaultdict(list)
    names: dict[tuple[int, Statement], str] = {}
    for number, program in enumerate(programs):
        for key in enumerate(program):
            name = names.setdefault(key, f"at{key[0]}_{len(names)}")
            users[name].append((number, key[0]))
    found: dict[int, set[Pair]] = defaultdict(set)
    for race in races:
        for labels in race.pairs:
            (program, first), (other, second) = (_user_of(label, users) for label in labels)
            assert program == other, f"{labels} are of two programs"
            found[program].add((first, second))
    return found


def _user_of(label: str, users: dict[str, list[tuple[int, int]]]) -> tuple[int, int]:
    place, _, count = label.rpartition("#")
    return users[place.rpartition(":")[2]][int(count) - 1]


def compared_in_torch(device: DeviceServer, programs: Sequence[Program]) -> list[Difference]:
    """Conflicts of each program by the recorder against the model's: all that are found are
    unordered there, and with an edge for each of them nothing is left unordered. (Bytes remember
    their latest write alone, so that not every pair is named.) Raises RuntimeError if the script
    did not finish.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "modelled.py"
        file.write_text(script_of(programs))
        outcome: Outcome = device.run(Script((str(file),), timeout_s=3000), Plan(), is_quiet=True)
    if outcome.ending is not Ending.FINISHED or outcome.exit_code:
        raise RuntimeError(f"{outcome.ending}: {outcome.message}")
    found = found_pairs(programs, outcome.findings)
    differences = []
    for number, program in enumerate(programs):
        said = found.get(number, set())
        wrong = sorted(said - unordered(program))
        left = sorted(unordered(program, more=edges_between(program, said)))
        if wrong or left:
            text = f"{wrong} are no conflicts of the model, {left} are left when all are ordered"
            differences.append(Difference(program=number, text=text))
    return differences
