"""The adapter of the toy runner. Its arguments say what it offers beside its history."""

import json
import os
import sys

from toy_runner import Runner, token

OFFERS = sys.argv[1:]  # of: plain observations holds owners
EDGE = {"name": "count-landed", "buffers": ["count"], "before": "d2h:count of the last step"}
EDGE |= {"after": "the host moving and reading counts", "reason": "a row has another one's count"}
PLANTS = [{"plant": "drop_edge", "edge": "count-landed"}, {"plant": "wrong_row"}]
HELLO = {"schema": "racegate.adapter/1", "engine": "toy", "version": "1", "lanes": ["copy"]}
HELLO |= {"offers": OFFERS, "edges": [EDGE], "plants": [*PLANTS, {"plant": "stale_value"}]}
HELLO |= {"boundaries": ["processed"] if "observations" in OFFERS else [], "holdable": ["d2h:*"]}
OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what the runner prints goes to standard error


def say(what, **fields):
    OUT.write(json.dumps({"is": what, **fields}) + "\n")


class Device:
    """Copies complete at once, unless a hold keeps one back until a point, or a wait needs it."""

    def __init__(self, holds, plant):
        self.holds = {text.split(" until ")[0]: text for text in holds}
        self.outcomes = {text: {"hold": text, "matched": 0, "realised": 0} for text in holds}
        self.plant = plant
        self.action = "host:start"
        self.late = None  # the hold of the copy that has not landed, and what it brings
        self.memory = {}  # row -> (count, owner), pinned
        self.previous = {}  # owner -> what it read last
        self.moves = 0
        say("buffer", name="count", rows=8)

    def begin(self, action):
        self.reach(self.action)  # what the host did until now is done
        self.action = f"host:{action}"

    def reach(self, point):
        if self.late and point in ("forced", self.late[0].split(" until ")[1]):
            hold, cells = self.late
            self.memory.update(cells)
            self.outcomes[hold]["realised"] += hold.endswith(" " + point)
            self.late = None

    def wait(self, edge, event):
        say("wait", edge=edge, event=event, dropped=self.plant == "drop_edge")
        if self.plant != "drop_edge":
            self.reach("forced")

    def touch(self, buffer, row, write):
        say("host", name=self.action, accesses=[{"buffer": buffer, "rows": [row], "write": write}])

    def move(self, buffer, source, target):
        self.touch(buffer, source, False)
        self.touch(buffer, target, True)
        self.memory[target] = self.memory.get(source, (0, None))
        self.moves += 1

    def read(self, buffer, row, owner):
        if self.plant == "wrong_row":
            row = (row + 1) % len(self.memory)
        self.touch(buffer, row, False)
        cell = self.memory.get(row, (0, None))
        if self.plant == "stale_value":
            cell, self.previous[owner[0]] = self.previous.get(owner[0], cell), cell
        if "owners" in OFFERS:
            say("owner", name=self.action, buffer=buffer, row=row, meant=owner, found=cell[1])
        return cell[0]

    def copy(self, buffer, cells, step):
        self.begin("launch")
        self.reach("forced")  # the stream is first in, first out
        name = f"d2h:{buffer}@{step}"
        use = {"buffer": buffer, "rows": list(cells), "write": True}
        say("op", name=name, lane="copy", accesses=[use])
        say("record", event=buffer, lane="copy")
        if name in self.holds:
            self.late = (self.holds[name], cells)
            self.outcomes[self.holds[name]]["matched"] += 1
        else:
            self.memory.update(cells)


def run(ask):
    requests = ask["scenario"]["requests"]
    device = Device(ask["holds"], (ask["plant"] or {}).get("plant"))
    runner, step, is_busy = Runner(requests, device), 0, True
    while is_busy:
        is_busy = runner.step(step)
        if "observations" in OFFERS:
            values = {"rows": [r and r["name"] for r in runner.rows], "count": runner.count}
            say("observation", step=step, boundary="processed", values=values)
        step += 1
    device.reach("forced")
    return {
        "delivered": runner.tokens,
        "finished": {r["name"]: "max_tokens" for r in requests},
        "steps": step,
        "counters": {"condense_moves": device.moves},
        "holds": [device.outcomes[text] for text in ask["holds"]],
    }


for line in sys.stdin:
    ask = json.loads(line)
    if ask["ask"] == "hello":
        say("hello", to=ask["id"], **HELLO)
    elif ask["ask"] == "plain":
        requests = ask["scenario"]["requests"]
        tokens = {r["name"]: [token(r, i) for i in range(r["max_tokens"])] for r in requests}
        say("plain", to=ask["id"], tokens=tokens)
    elif any(r["stop_after"] or r["stop_token"] is not None for r in ask["scenario"]["requests"]):
        say("refused", to=ask["id"], reason="it ends requests by max_tokens alone")
    else:
        say("ran", to=ask["id"], **run(ask))
