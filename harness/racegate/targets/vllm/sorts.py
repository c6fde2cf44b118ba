"""Scenarios in which requests of every sort meet everything that happens to requests, drawn from
seeds: what FACTORS says of a request is drawn for each.

Scenarios that were written for one thing have requests of one sort. What a mistake needs is often
two things: a row that is moved, and that asks for log probabilities; a prompt in chunks, and a
grammar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from random import Random
from typing import Any, TypeAlias

import tomli_w

from racegate.targets.vllm.wire import ANY

BLOCK = 80  # tokens
# Three requests have all of these as they begin, and each wants more where its second block begins.
GROWING, FREE_BLOCKS = 3, 18
FIRST_SEEDS = {"all": 4, "none": 104, "scored": 204, "one": 304}  # by penalties
FACTORS: dict[str, tuple[str, ...]] = {
    "sort": ("greedy", "0", "1", "2", "3", "warm", "any"),
    "penalties": tuple(FIRST_SEEDS),
    "grammar": ("none", "grammar"),
    "prompt": ("one", "short", "to a block", "in chunks", "shared", "the same"),
    "end": (
        "first",
        "soon",
        "late",
        "with a block",
        "over a block",
        "stopped",
        "aborted",
        "given up early",
    ),
    "arrival": ("at once", "meeting", "waiting"),
    "accepts": ("none", "all", "some"),
    "drafts": ("usual", "fewer"),
}
# What is the same for all requests of a scenario.
PRESSURES: dict[str, tuple[str, ...]] = {
    "pressure": ("none", "blocks", "kept", "cleared"),
    "steps": ("whole", "small"),  # a few of them may schedule few tokens
}
BLOCK_END = (BLOCK - 1, BLOCK, BLOCK + 1)
# Tokens of prompts: what is wrong is so at an edge, of a block or of a step (256).
PROMPTS: dict[str, tuple[int, ...]] = {
    "one": (1,),
    "short": tuple(range(2, 13)),
    "to a block": (BLOCK - 3, *BLOCK_END, BLOCK + 2),
    "in chunks": (257, 258, 272, 273, 4 * BLOCK, 4 * BLOCK + 1, 330),
    # One more than a block's: beginnings of one prompt, of which each keeps states of its own.
    "shared": tuple(blocks * BLOCK + more for blocks in (1, 2, 3, 4) for more in (1, 5, 30, 79)),
}
# Tokens of outputs, from and to; of other requests they are more.
OUTPUTS = {"first": (1, 1), "soon": (2, 4), "late": (9, 16), "over a block": (18, 26)}
MORE = (18, 28)
GIVEN_UP = ("aborted", "given up early")
ACCEPTS = {"none": [[1]], "all": [[4]], "some": [[2, 4], [3, 1], [1, 3, 4, 2], [3, 2]]}
Keys: TypeAlias = dict[str, Any]  # of a table in a file
Pair: TypeAlias = tuple[tuple[str, str], tuple[str, str]]


@dataclass
class DrawnScenario:
    """A scenario, as keys of a file, and what is said of each of its requests."""

    keys: Keys
    told: list[dict[str, str]] = field(default_factory=list)

    @property
    def pairs(self) -> set[Pair]:
        """All that occur in it."""
        return {pair for one in self.told for pair in combinations(one.items(), 2)} | {
            (("before", before["sort"]), ("behind", behind["sort"]))
            for before, behind in pairwise(self.told)
        }


def drawn(seed: int) -> DrawnScenario:
    """The same scenario for a seed on every machine."""
    draw = Random(f"pairs {seed}")
    pressed = {name: draw.choice(of) for name, of in PRESSURES.items()}
    pressure = pressed["pressure"]
    one = DrawnScenario({"seed": seed + 1})
    requests: list[Keys] = []
    events: list[Keys] = []
    for name in "ABCDEFGH"[: draw.randint(5, 8)]:
        told = _told_of(draw, pressed, requests)
        one.told.append(told)
        requests.append(_request_of(draw, name, told, requests))
        events += _events_of(draw, told, requests[-1])
    if pressure == "blocks":
        one.keys["free_blocks"] = FREE_BLOCKS
    one.keys["requests"] = requests
    if pressed["steps"] == "small":
        first, tokens = draw.randint(4, 8), draw.randint(9, 40)
        steps = range(first, first + 6)
        events += [{"kind": "budget", "step": step, "tokens": tokens} for step in steps]
    if events:
        one.keys["events"] = sorted(events, key=lambda event: event["step"])
    if pressure in ("kept", "cleared"):
        pause = {"step": draw.randint(4, 6), "turns": draw.randint(0, 2), "caches": pressure}
        one.keys["pauses"] = [pause]
    return one


def expected(told: list[dict[str, str]]) -> dict[str, int]:
    """What a run of most of them exercises."""
    pressure = told[0]["pressure"]
    # Others may be given up before they decode, or done with the step in which they do.
    long = [one for one in told if one["end"] in ("late", "with a block", "over a block")]
    is_masked = any(one["grammar"] == "grammar" for one in long)
    is_rejecting = any(one["accepts"] != "all" for one in long)
    is_given_up = any(one["end"] == "aborted" for one in told)
    chunked = [one for one in told if one["prompt"] == "in chunks" and one["end"] not in GIVEN_UP]
    counts = {
        "overlapped_ops": 4,
        "rejections": 2 * is_rejecting,
        "masked_rows": int(is_masked),
        "discarded_rows": len(chunked),  # each is longer than any step
        "aborts_in_flight": int(is_given_up),
        "preemptions": int(pressure in ("blocks", "cleared")),
        "pauses_in_flight": int(pressure in ("kept", "cleared")),
    }
    return {name: count for name, count in counts.items() if count}


def _told_of(draw: Random, pressed: dict[str, str], before: list[Keys]) -> dict[str, str]:
    """What is said of a request, of which some cannot be said with others."""
    pressure = pressed["pressure"]
    told = {name: draw.choice(of) for name, of in FACTORS.items()} | pressed
    if told["sort"] in ("greedy", "warm", "any"):
        del told["penalties"]
    if told["sort"] == "warm":
        told["grammar"] = "none"
    others = ("shared", "the same")
    if told["prompt"] in others and not any(one["prompt_len"] > BLOCK for one in before):
        told["prompt"] = "to a block"
    if pressure == "blocks" and told["prompt"] in ("in chunks", "shared", "the same"):
        told["prompt"] = "short"
    if pressure == "blocks" and len(before) < GROWING:
        told |= {"end": "over a block", "arrival": "at once"}
    elif pressure == "blocks":
        told["arrival"] = "meeting"
    if told["end"] in ("over a block", "with a block"):
        told["prompt"] = "to a block"
    if not before:
        told["arrival"] = "at once"
    return told


def _request_of(draw: Random, name: str, told: dict[str, str], before: list[Keys]) -> Keys:
    """As a file has it."""
    end, first = told["end"], next((one for one in before if one["prompt_len"] > BLOCK), {})
    length = draw.choice(PROMPTS.get(told["prompt"]) or (first["prompt_len"],))
    tokens = draw.randint(*OUTPUTS.get(end, MORE))
    if end == "over a block":
        length = draw.randint(BLOCK - 12, BLOCK - 3)
    if end == "with a block":
        length, tokens = BLOCK - 10, draw.choice(BLOCK_END) - (BLOCK - 10)
    request: Keys = {"name": name, "prompt_len": length, "max_tokens": tokens}
    if told["arrival"] == "meeting":  # when the first ones end
        request["arrive"] = draw.randint(3, 6)
    elif told["arrival"] == "waiting":
        request["arrive"] = draw.randint(1, 2)
    if told["prompt"] in ("shared", "the same"):
        most = min(first["prompt_len"], length - int(told["prompt"] == "shared"))
        request |= {"shares": first["name"], "shares_tokens": most}
        request["arrive"] = first.get("arrive", 0) + draw.randint(1, 5)
    if end == "stopped":  # or with the last token that it may have
        request["stop_after"] = draw.randint(4, 12)
        request["max_tokens"] = draw.choice((tokens, tokens, request["stop_after"]))
    request["accepts"] = draw.choice(ACCEPTS[told["accepts"]])
    if told["grammar"] == "grammar":
        request["grammar_modulus"] = 2
    if told["sort"] == "warm":
        request |= {"temperature": 1.0, "seed": draw.randint(0, 99)}
    elif told["sort"] == "any":
        request |= {"temperature": draw.choice((0.02, 0.05, 0.1)), "seed": draw.choice(ANY)}
    elif told["sort"] != "greedy":
        seed = FIRST_SEEDS[told["penalties"]] + 4 * draw.randint(0, 20) + int(told["sort"])
        request |= {"temperature": 0.05, "seed": seed}
    return request


def _events_of(draw: Random, told: dict[str, str], request: Keys) -> Iterator[Keys]:
    """What happens to it."""
    name, arrive = request["name"], request.get("arrive", 0)
    if told["end"] == "aborted":
        yield {"kind": "abort", "step": arrive + draw.randint(3, 6), "request": name}
    if told["end"] == "given up early":
        yield {"kind": "abort", "step": arrive + draw.randint(1, 2), "request": name}
    if told["drafts"] == "fewer":
        first = arrive + draw.randint(2, 5)
        for step in range(first, first + draw.randint(1, 3)):
            drafts = draw.randint(0, 2)
            yield {"kind": "draft_limit", "step": step, "request": name, "drafts": drafts}


def file_of(one: DrawnScenario, name: str, *, title: str, origin: str) -> str:
    """A scenario file."""
    keys = {"schema": 1, "name": name, "title": title, "origin": origin, **one.keys}
    return tomli_w.dumps(keys)
