"""Random programs of two ranks, judged beside all orders in which hosts and devices can go on.

    python reports/interposer/rank_orders.py reports/interposer/rank_orders.json

Two questions: whether a program is stuck, asked of the queues and of what matches them without
processes; and which accesses have no order, asked of `--ranks 2` on the virtual device. Exit 1 if
an answer is not that of the enumeration.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "interpose"))

from rank_orders import Orders, drawn_programs, racing_programs
from rank_scripts import AT_ONCE, judged_beside_orders
from rank_simulation import found_in

from racegate.history.finding import FindingKind
from racegate.targets.program.launch import open_device

SEED, STUCK, RACING = 30, 20_000, 2_000
_STUCK = {FindingKind.DEADLOCK, FindingKind.MISMATCH}


def main(target: str) -> int:
    """Asks both questions, and writes what came of them."""
    stuck, racing = stuck_programs(), racing_pairs()
    told = {"seed": SEED, "torch": str(torch.__version__), "stuck": stuck, "racing": racing}
    Path(target).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return bool(stuck["wrong"] or racing["wrong"])


def stuck_programs() -> dict[str, object]:
    """How many programs are stuck, and those of which it was not said, or wrongly."""
    draw = random.Random(SEED)
    wrong, stuck = [], 0
    for _ in range(STUCK):
        programs = drawn_programs(draw)
        is_stuck = Orders(programs, meets=True).is_stuck
        stuck += is_stuck
        if bool(found_in(programs, draw) & _STUCK) != is_stuck:
            wrong.append(str(programs))
    return {"programs": STUCK, "stuck": stuck, "wrong": wrong}


def racing_pairs() -> dict[str, object]:
    """How many programs race, and what was said wrongly of their pairs of accesses."""
    draw = random.Random(SEED)
    judged = []
    with tempfile.TemporaryDirectory() as folder, open_device() as device:
        for _ in range(RACING // AT_ONCE):
            programs = [racing_programs(draw) for _ in range(AT_ONCE)]
            judged += judged_beside_orders(device, programs, Path(folder) / "script.py")
    return {
        "programs": len(judged),
        "with_unordered_pairs": sum(bool(one.orders.unordered) for one in judged),
        "unordered_pairs": sum(len(one.orders.unordered) for one in judged),
        "told_pairs": sum(len(one.claims) for one in judged),
        "wrong": [wrong for one in judged for wrong in one.wrong],
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
