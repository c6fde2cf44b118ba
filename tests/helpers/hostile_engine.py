"""Engines that misbehave: `python hostile_engine.py HOW [NUMBER]`. Each introduces itself properly,
unless that is what it does wrong.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HELLO = {
    "is": "hello",
    "schema": "racegate.adapter/1",
    "engine": "hostile",
    "version": "1",
    "lanes": ["copy"],
}
RAN = {"is": "ran", "delivered": {"A": [1]}, "finished": {"A": "unfinished"}, "steps": 1}
BUFFER = {"is": "buffer", "name": "x", "rows": 4}


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def put(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def forever() -> None:
    while True:
        time.sleep(60)


def exit_midway(ask: dict[str, Any]) -> None:
    say(**BUFFER)
    print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
    raise SystemExit(7)


def exit_midline(ask: dict[str, Any]) -> None:
    put('{"is": "ran", "deliv')
    raise SystemExit(0)


def killed(ask: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(ask: dict[str, Any]) -> None:
    print("waiting for a latch", file=sys.stderr, flush=True)
    forever()


def hang_midline(ask: dict[str, Any]) -> None:
    put('{"is": "ran"')
    forever()


def hang_closed(ask: dict[str, Any]) -> None:
    os.close(1)
    forever()


def hang_deaf(ask: dict[str, Any]) -> None:
    """Ends neither with its input nor by a polite signal; nor does its child."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
    forever()


def chatter(ask: dict[str, Any]) -> None:
    while True:
        say(**{"is": "record", "event": "e", "lane": "copy"})


def hog(ask: dict[str, Any]) -> None:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (8 << 20))


def hog_in_child(ask: dict[str, Any]) -> None:
    subprocess.run([sys.executable, __file__, "hog"], input=b'{"ask": "run"}\n', check=False)


def stderr_flood(ask: dict[str, Any]) -> None:
    for number in range(50_000):
        print(f"line {number} {'x' * 90}", file=sys.stderr)
    sys.stderr.write("y" * 1_000_000)
    sys.stderr.flush()
    raise SystemExit(9)


def answer_then_flood(ask: dict[str, Any]) -> None:
    for _ in range(20_000):
        print("z" * 100, file=sys.stderr)
    say(**RAN, to=ask["id"])


RUNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "garbage": lambda ask: put("INFO 12:00:01 loading weights\n"),
    "binary": lambda ask: os.write(1, b"\xff\xfe\x00\n"),
    "empty_line": lambda ask: put("\n"),
    "huge_line": lambda ask: [put("[" * (1 << 20)) for _ in range(8)],
    "unknown_field": lambda ask: say(**RAN, to=ask["id"], surprise=1),
    "unknown_line": lambda ask: say(**{"is": "nonsense"}),
    "wrong_id": lambda ask: say(**RAN, to=ask["id"] + 1),
    "wrong_answer": lambda ask: say(**{"is": "plain", "tokens": {}}, to=ask["id"]),
    "other_requests": lambda ask: say(**RAN | {"delivered": {}}, to=ask["id"]),
    "other_finish": lambda ask: say(**RAN | {"finished": {"A": "done"}}, to=ask["id"]),
    "holds_unsaid": lambda ask: say(**RAN, to=ask["id"]),
    "contradiction": lambda ask: say(**{"is": "op", "name": "a@1", "lane": "plan"}),
    "exit_midway": exit_midway,
    "exit_midline": exit_midline,
    "killed": killed,
    "hang": hang,
    "hang_midline": hang_midline,
    "hang_closed": hang_closed,
    "hang_deaf": hang_deaf,
    "chatter": chatter,
    "hog": hog,
    "hog_in_child": hog_in_child,
    "stderr_flood": stderr_flood,
    "answer_then_flood": answer_then_flood,
    # In one write, so that both are there when the answer is read.
    "speaks_unasked": lambda ask: put(
        json.dumps({**RAN, "to": ask["id"]}) + "\n" + json.dumps(BUFFER) + "\n"
    ),
    "answers_twice": lambda ask: [say(**RAN, to=ask["id"]) for _ in range(2)],
    "dies_behind_its_answer": lambda ask: (say(**RAN, to=ask["id"]), killed(ask)),
    "stops": lambda ask: say(
        **{"is": "stopped", "kind": "deadlock", "error": "DeadlockError", "message": "no record"},
        to=ask["id"],
    ),
    "refuses": lambda ask: say(**{"is": "refused", "reason": "no prefix cache"}, to=ask["id"]),
}


def introduce(how: str, ask: dict[str, Any]) -> None:
    if how == "no_hello":
        print("ModuleNotFoundError: No module named 'vllm'", file=sys.stderr)
        raise SystemExit(1)
    schema = "racegate.adapter/9" if how == "other_schema" else HELLO["schema"]
    twice = ["copy", "copy"] if how == "senseless" else HELLO["lanes"]
    if how == "changes":
        say(**HELLO | {"version": str(os.getpid())}, to=ask["id"])
    elif how == "history_first":
        say(**BUFFER)
    else:
        say(**HELLO | {"schema": schema, "lanes": twice}, to=ask["id"])


def main() -> None:
    how = sys.argv[1]
    for line in sys.stdin:
        ask = json.loads(line)
        if ask["ask"] == "hello":
            introduce(how, ask)
        else:
            RUNS[how](ask)


if __name__ == "__main__":
    main()
