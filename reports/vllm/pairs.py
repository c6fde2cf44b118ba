"""Draws scenarios in which requests of every sort meet everything that happens to requests.

    python reports/vllm/pairs.py scenarios/vllm

Scenarios that were written for one thing have requests of one sort. What a mistake needs is often
two things: a row that is moved, and that asks for log probabilities; a prompt in chunks, and a
grammar. So each pair of what FACTORS say of a request, and of the sorts of two requests that stand
next to each other, is in one of the files `pairs_*.toml`: a covering array of strength two. They
are drawn from seeds, and chosen one by one, each with as many new pairs as any of the drawn ones.
Files that are there are made anew; the same are made again on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

ORIGIN = "mistakes that reports/vllm/unknown.md has as not noticed"
BLOCK = 80  # tokens
DRAWN = 4000
# Three requests have all of these as they begin, and each wants more where its second block begins.
GROWING, FREE_BLOCKS = 3, 18
FIRST_SEEDS = {"all": 4, "none": 104, "scored": 204, "one": 304}  # by penalties
HEADER = """\
# Drawn and chosen by `python reports/vllm/pairs.py scenarios/vllm`: each pair of what can be said
# of a request occurs in one of these files. {told}
"""
FACTORS: dict[str, tuple[str, ...]] = {
    "sort": ("greedy", "0", "1", "2", "3", "warm"),
    "penalties": tuple(FIRST_SEEDS),
    "grammar": ("none", "grammar"),
    "prompt": ("one", "short", "to a block", "in chunks", "shared"),
    "end": ("first", "soon", "late", "over a block", "stopped", "aborted", "given up early"),
    "arrival": ("at once", "meeting", "waiting"),
    "accepts": ("none", "all", "some"),
    "drafts": ("usual", "fewer"),
    "pressure": ("none", "blocks", "budget", "kept", "cleared"),
}
ACCEPTS = {"none": [[1]], "all": [[4]], "some": [[2, 4], [3, 1], [1, 3, 4, 2], [3, 2]]}
Pair = tuple[tuple[str, str], tuple[str, str]]


@dataclass
class Drawn:
    """A scenario, as keys of a file, and what is said of each of its requests."""

    keys: dict[str, Any]
    told: list[dict[str, str]] = field(default_factory=list)

    @property
    def pairs(self) -> set[Pair]:
        """All that occur in it."""
        return {pair for one in self.told for pair in combinations(one.items(), 2)} | {
            (("before", before["sort"]), ("behind", behind["sort"]))
            for before, behind in pairwise(self.told)
        }


def write(folder: Path) -> None:
    """Makes them anew."""
    for file in folder.glob("pairs_*.toml"):
        file.unlink()
    for number, one in enumerate(chosen([drawn(seed) for seed in range(DRAWN)]), 1):
        name = f"pairs_{number:02}"
        pressure = one.told[0]["pressure"]
        title = f"requests of every sort: {number}"
        keys = {"schema": 1, "name": name, "title": title, "origin": ORIGIN, **one.keys}
        told = "Nothing else happens." if pressure == "none" else f"Pressure: {pressure}."
        text = HEADER.format(told=told) + tomli_w.dumps(keys)
        (folder / f"{name}.toml").write_text(text)


def chosen(drawn: list[Drawn]) -> list[Drawn]:
    """So many that no pair is missing that occurs in any."""
    left = set().union(*(one.pairs for one in drawn))
    found = []
    while left:
        best = max(drawn, key=lambda one: len(one.pairs & left))
        left -= best.pairs
        found.append(best)
    return found


def drawn(seed: int) -> Drawn:
    """The same scenario for a seed on every machine."""
    draw = Random(f"pairs {seed}")
    pressure = draw.choice(FACTORS["pressure"])
    one = Drawn({"seed": seed + 1})
    requests: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    for at in range(6):
        told = told_of(draw, pressure, requests)
        one.told.append(told)
        requests.append(request_of(draw, "ABCDEF"[at], told, requests))
        events += events_of(draw, told, requests[-1])
    if pressure == "blocks":
        one.keys["free_blocks"] = FREE_BLOCKS
    one.keys["requests"] = requests
    if pressure == "budget":
        first, tokens = draw.randint(4, 8), draw.randint(9, 40)
        steps = range(first, first + 6)
        events += [{"kind": "budget", "step": step, "tokens": tokens} for step in steps]
    if events:
        one.keys["events"] = sorted(events, key=lambda event: event["step"])
    if pressure in ("kept", "cleared"):
        pause = {"step": draw.randint(4, 6), "turns": draw.randint(0, 2), "caches": pressure}
        one.keys["pauses"] = [pause]
    one.keys["expect"] = expected(one.told, pressure)
    return one


def expected(told: list[dict[str, str]], pressure: str) -> dict[str, int]:
    """What a run has to exercise."""
    is_masked = any(one["grammar"] == "grammar" for one in told)
    is_given_up = any(one["end"] == "aborted" for one in told)
    counts = {
        "overlapped_ops": 4,
        "rejections": 2,
        "masked_rows": int(is_masked),
        "aborts_in_flight": int(is_given_up),
        "preemptions": int(pressure in ("blocks", "cleared")),
        "pauses_in_flight": int(pressure in ("kept", "cleared")),
        "discarded_rows": int(pressure == "budget"),
    }
    return {name: count for name, count in counts.items() if count}


def told_of(draw: Random, pressure: str, before: list[dict[str, Any]]) -> dict[str, str]:
    """What is said of a request, of which some cannot be said with others."""
    told = {name: draw.choice(of) for name, of in FACTORS.items()} | {"pressure": pressure}
    if told["sort"] in ("greedy", "warm"):
        del told["penalties"]
    if told["sort"] == "warm":
        told["grammar"] = "none"
    if told["prompt"] == "shared" and not any(one["prompt_len"] > BLOCK for one in before):
        told["prompt"] = "to a block"
    if pressure == "blocks" and told["prompt"] == "in chunks":
        told["prompt"] = "short"
    if pressure == "blocks" and len(before) < GROWING:
        told |= {"end": "over a block", "arrival": "at once"}
    elif pressure == "blocks":
        told["arrival"] = "meeting"
    if told["end"] == "over a block":
        told["prompt"] = "to a block"
    if not before:
        told["arrival"] = "at once"
    return told


def request_of(
    draw: Random, name: str, told: dict[str, str], before: list[dict[str, Any]]
) -> dict[str, Any]:
    """As a file has it."""
    lengths = {
        "one": (1, 1),
        "short": (2, 12),
        "to a block": (BLOCK - 3, BLOCK + 2),
        "in chunks": (257, 330),
        "shared": (BLOCK + 4, BLOCK + 30),
    }
    tokens = {"first": (1, 1), "soon": (2, 4), "late": (9, 16), "over a block": (18, 26)}
    end = told["end"]
    length = draw.randint(*lengths[told["prompt"]])
    if end == "over a block":
        length = draw.randint(BLOCK - 12, BLOCK - 3)
    request: dict[str, Any] = {"name": name, "prompt_len": length}
    request["max_tokens"] = draw.randint(*tokens.get(end, (18, 28)))
    if told["arrival"] == "meeting":  # when the first ones end
        request["arrive"] = draw.randint(3, 6)
    elif told["arrival"] == "waiting":
        request["arrive"] = draw.randint(1, 2)
    if told["prompt"] == "shared":
        first = next(one for one in before if one["prompt_len"] > BLOCK)
        most = min(first["prompt_len"], length - 1)
        request |= {"shares": first["name"], "shares_tokens": most}
        request["arrive"] = first.get("arrive", 0) + draw.randint(1, 5)
    if end == "stopped":
        request["stop_after"] = draw.randint(4, 12)
    request["accepts"] = draw.choice(ACCEPTS[told["accepts"]])
    if told["grammar"] == "grammar":
        request["grammar_modulus"] = 2
    if told["sort"] == "warm":
        request |= {"temperature": 1.0, "seed": draw.randint(1, 99)}
    elif told["sort"] != "greedy":
        seed = FIRST_SEEDS[told["penalties"]] + 4 * draw.randint(0, 20) + int(told["sort"])
        request |= {"temperature": 0.05, "seed": seed}
    return request


def events_of(
    draw: Random, told: dict[str, str], request: dict[str, Any]
) -> Iterator[dict[str, Any]]:
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


if __name__ == "__main__":
    write(Path(sys.argv[1]))
