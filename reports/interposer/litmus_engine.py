"""The engine's litmus programs as plain torch calls, judged on the virtual device.

    python reports/interposer/litmus_engine.py OUT.json [NAME ...]

What the interposer says of one run must be what is written beside the program, or what the engine's
ordering oracle says of the same text, and every outcome that the search shows must be one that
CUDA's rules allow. Programs with flags are left out: torch has no
call by which a stream waits for the host.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "helpers"))

from conformance import RANDOM_PROGRAMS, allowed_outcomes, has_conflict, random_program
from litmus_programs import ALL
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.search import VERDICTS
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, open_device

RUNS_MAX = 24
# For the engine's oracle a query is no edge. Here a true answer is one: the program may rely on it.
ORDERED_BY_A_QUERY = {"reading-after-a-true-query"}


def programs() -> dict[str, str]:
    """Texts by name: those with outcomes written by hand, and random ones."""
    texts = {litmus.name: litmus.program for litmus in ALL}
    texts |= {name: random_program(name) for name in RANDOM_PROGRAMS}
    return {name: text for name, text in texts.items() if "flag" not in text}


def expected(name: str, text: str) -> bool:
    """Whether the program is racy: as written beside it, else as the engine's oracle says."""
    if name in ORDERED_BY_A_QUERY:
        return False
    written = {litmus.name: litmus.racy for litmus in ALL}
    if name in written:
        return written[name]
    return has_conflict(text)


def judge_one(device: DeviceServer, name: str) -> dict[str, object]:
    """What the interposer says of a program, and what the engine's judges say."""
    text = programs()[name]
    program = Program((str(HERE / "litmus_engine_one.py"), text), timeout_s=120)
    found = judge_on(device, program, explores=True, runs_max=RUNS_MAX, is_quiet=True)
    outcome, judged = found.shown, found.judged
    held = [one.landing.what for one in judged if one.landing is not None]
    shown = [o.preview for run in held for o in run.observations]
    shown += [o.preview for o in outcome.observations]
    allowed = {str(list(seen)) for seen in allowed_outcomes(text)}
    is_racy = expected(name, text)
    right = bool(outcome.findings) == is_racy and set(shown) <= allowed
    return {
        "name": name,
        "ending": outcome.ending.value,
        "message": outcome.message,
        "racy": is_racy,
        "findings": len(outcome.findings),
        "verdicts": [VERDICTS[one.effect].value for one in judged],
        "outcomes": sorted(set(shown)),
        "allowed": sorted(allowed),
        "right": right and outcome.ending.value == "finished",
    }


def main() -> int:
    out, *names = sys.argv[1:]
    rows = []
    with open_device() as device:
        for name in names or programs():
            rows.append(judge_one(device, name))
            if not rows[-1]["right"]:
                print(rows[-1], flush=True)
            write_json(Path(out), rows)
    racy = [row for row in rows if row["racy"]]
    shown = sum("DIVERGENT" in row["verdicts"] for row in racy)
    right = sum(bool(row["right"]) for row in rows)
    print(f"{right} of {len(rows)} right, {shown} of {len(racy)} racy ones shown")
    return any(not row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
