"""An engine that says what a script tells it to: `python scripted_engine.py SCRIPT.json`.

The script has the fields of its introduction, the tokens of plain decoding, and by the holds and
the plant of a question (`run_key`) the lines and the answer of a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REQUEST = "A"
TOKENS = [1, 2, 3]
EDGE = {
    "name": "landed",
    "before": "d2h:x",
    "after": "the host reading x",
    "buffers": ["x"],
    "reason": "a stale x is read",
}
HELLO = {
    "schema": "racegate.adapter/1",
    "engine": "scripted",
    "version": "1",
    "lanes": ["copy", "compute"],
    "edges": [EDGE],
}
RAN = {
    "is": "ran",
    "delivered": {REQUEST: TOKENS},
    "finished": {REQUEST: "max_tokens"},
    "steps": 9,
}


def run_key(holds: Sequence[str], plant: Mapping[str, str] | None) -> str:
    """What the script files a run under; the empty text is the eager run without a plant, and
    `shorter` that of the kit's other scenario.
    """
    return " & ".join([*holds, *([plant["plant"]] if plant else [])])


def scripted(
    folder: Path,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    **hello: Any,
) -> list[str]:
    """The command of an engine that says these lines. What has no lines of its own has the eager
    run's; answers: what is told of their end that is not as usual, or another answer.
    """
    script = {"hello": HELLO | hello, "runs": runs, "answers": answers or {}}
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    return [sys.executable, __file__, str(path)]


def buffer(name: str = "x", rows: int = 4, **fields: Any) -> dict[str, Any]:
    return {"is": "buffer", "name": name, "rows": rows, **fields}


def use(name: str, rows: Sequence[object] | None = None, *, write: bool = False) -> dict[str, Any]:
    return {"buffer": name, "rows": rows, "write": write}


def op(
    name: str, *accesses: Mapping[str, Any], lane: str = "copy", **fields: Any
) -> dict[str, Any]:
    return {"is": "op", "name": name, "lane": lane, "accesses": accesses, **fields}


def host(name: str, *accesses: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"is": "host", "name": name, "accesses": accesses, **fields}


def record(event: str = "e", lane: str = "copy") -> dict[str, Any]:
    return {"is": "record", "event": event, "lane": lane}


def wait(event: str = "e", lane: str = "host", **fields: Any) -> dict[str, Any]:
    return {"is": "wait", "edge": "landed", "event": event, "lane": lane, **fields}


def observation(step: int, **values: object) -> dict[str, Any]:
    return {"is": "observation", "step": step, "boundary": "sampled", "values": values}


def _answer(script: Mapping[str, Any], ask: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if ask["ask"] == "hello":
        return [{"is": "hello", **script["hello"]}]
    tokens = {REQUEST: TOKENS[: ask["scenario"]["requests"][0]["max_tokens"]]}
    if ask["ask"] == "plain":
        return [{"is": "plain", "tokens": tokens}]
    is_shorter = ask["scenario"]["name"].endswith("-shorter")
    key = "shorter" if is_shorter else run_key(ask["holds"], ask["plant"])
    answer = RAN | {"holds": [{"hold": h, "matched": 1, "realised": 1} for h in ask["holds"]]}
    answer |= {"delivered": tokens}
    lines = script["runs"].get(key, script["runs"][""])
    told = script["answers"].get(key, {})
    return [*lines, told if "is" in told else answer | told]


def main() -> None:
    """With `unsteady` as a second argument the second eager run is that of the key `again`."""
    script = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        ask = json.loads(line)
        *lines, answer = _answer(script, ask)
        if answer["is"] == "hang":
            sys.stdin.read()
        if sys.argv[2:] == ["unsteady"] and ask["ask"] == "run" and not ask["holds"]:
            script["runs"][""] = script["runs"]["again"]
        for said in [*lines, {"to": ask["id"], **answer}]:
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
