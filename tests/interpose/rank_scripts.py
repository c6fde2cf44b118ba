"""Random programs of two ranks as a script of PyTorch, and what racegate's findings say of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rank_orders import BUFFERS, STREAMS, Orders, Pair, Program, Programs, Step, Word

from racegate.history.finding import Race
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer
from racegate.targets.program.launch import Program as Script

AT_ONCE = 50  # programs of one script, which share its start

HEAD = f"""
import os
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
groups = [dist.group.WORLD, dist.new_group([0, 1])]
streams = [torch.cuda.Stream() for _ in range({STREAMS})]
buffers = [torch.zeros(8, device="cuda") for _ in range({BUFFERS})]
scratch = [torch.zeros(8, device="cuda") for _ in range(16)]
for group in groups:
    dist.all_reduce(buffers[0], group=group)
torch.cuda.synchronize()
works = {{}}

"""
_STEP = re.compile(r"\.py:p(?P<program>\d+)_rank(?P<rank>\d)_step(?P<step>\d+)#\d+ of rank \d$")


def script_of(programs: Sequence[Programs]) -> str:
    """They run one after the other, and all of a rank's work is waited for between them. Each
    statement stands in a function of its own, by which a finding names it.
    """
    parts = [HEAD]
    for at, ranks in enumerate(programs):
        for rank, program in enumerate(ranks):
            parts.append(_functions(program, f"p{at}_rank{rank}"))
        parts.append(f"for step in p{at}_rank0 if rank == 0 else p{at}_rank1:\n    step()")
        parts.append("torch.cuda.synchronize()\nworks.clear()")
    parts.append("dist.destroy_process_group()\n")
    return "\n".join(parts)


def _functions(program: Program, name: str) -> str:
    lines = []
    for at, step in enumerate(program):
        lines += [f"def {name}_step{at}():", f"    with torch.cuda.stream(streams[{step.stream}]):"]
        lines.append(f"        {_statement(step, at)}")
    names = ", ".join(f"{name}_step{at}" for at in range(len(program)))
    return "\n".join([*lines, f"{name} = [{names}]"])


def _statement(step: Step, at: int) -> str:
    kind = "all_reduce(" if step.root is None else f"broadcast(src={step.root}, tensor="
    call = f"dist.{kind}buffers[{step.buffer}], group=groups[{step.comm}]"
    match step.word:
        case Word.CALL:
            return f"{call})"
        case Word.START:
            return f"works[{step.comm}] = {call}, async_op=True)"
        case Word.JOIN:
            return f"{step.comm} in works and works[{step.comm}].wait()"
        case Word.EDGE:
            return f"streams[{step.stream}].wait_stream(streams[{1 - step.stream}])"
        case Word.WAIT:
            return f"streams[{step.stream}].synchronize()"
        case Word.READ:
            return f"torch.add(buffers[{step.buffer}], 1, out=scratch[{at}])"
        case _:
            return f"buffers[{step.buffer}].fill_({at})"


def claims_of(races: Sequence[Race], count: int) -> list[set[Pair]]:
    """By program, the pairs of statements of which findings say that nothing orders them."""
    claims: list[set[Pair]] = [set() for _ in range(count)]
    for race in races:
        for pair in race.pairs:
            (one, rank, first), (other, also, second) = map(_place_of, pair)
            assert (one, rank) == (other, also), pair
            claims[one].add((rank, min(first, second), max(first, second)))
    return claims


def _place_of(label: str) -> tuple[int, int, int]:
    match = _STEP.search(label)
    assert match is not None, label
    return int(match["program"]), int(match["rank"]), int(match["step"])


@dataclass(frozen=True)
class BesideOrders:
    """A program as it was judged. claims: the pairs that are told; orders: all that it has"""

    programs: Programs
    claims: set[Pair]
    orders: Orders

    @property
    def wrong(self) -> list[str]:
        """What is told of pairs of which the first always comes first, or of a program that does
        not race, and racing programs of which nothing is told, in words.
        """
        found = []
        if ordered := self.claims - self.orders.not_behind:
            found.append(f"ordered: {ordered} of {self.programs}")
        if bool(self.orders.unordered) != bool(self.claims):
            found.append(f"told {self.claims} for {self.orders.unordered} of {self.programs}")
        return found


def judged_beside_orders(
    device: DeviceServer, programs: Sequence[Programs], script: Path
) -> list[BesideOrders]:
    """Runs all of them once. script: where it is written"""
    script.write_text(script_of(programs))
    run = Script((str(script),), timeout_s=300, ranks=2)
    found = judge_on(device, run, explores=False, runs_max=1, is_quiet=True)
    assert found.is_finished, found.shown.message
    claims = claims_of(found.races, len(programs))
    return [
        BesideOrders(one, claimed, Orders(one, meets=False))
        for one, claimed in zip(programs, claims, strict=True)
    ]
