"""Chooses scenarios in which each pair of what can be said of a request occurs.

    python reports/vllm/pairs.py scenarios/vllm

Each pair of what FACTORS (racegate.targets.vllm.sorts) say of a request, and of the sorts of two
requests that stand next to each other, is in one of the files `pairs_*.toml`: a covering array of
strength two. They are drawn from seeds, and chosen one by one, each with as many new pairs as any
of the drawn ones. Files that are there are made anew; the same are made again on every machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from racegate.targets.vllm.sorts import DrawnScenario, drawn, expected, file_of

ORIGIN = "mistakes that reports/vllm/unknown.md has as not noticed"
DRAWN = 4000
HEADER = """\
# Drawn and chosen by `python reports/vllm/pairs.py scenarios/vllm`: each pair of what can be said
# of a request occurs in one of these files. {told}
"""


def write(folder: Path) -> None:
    """Makes them anew."""
    for file in folder.glob("pairs_*.toml"):
        file.unlink()
    for number, one in enumerate(chosen([drawn(seed) for seed in range(DRAWN)]), 1):
        name = f"pairs_{number:02}"
        one.keys["expect"] = expected(one.told)
        pressure = one.told[0]["pressure"]
        told = "Nothing else happens." if pressure == "none" else f"Pressure: {pressure}."
        text = file_of(one, name, title=f"requests of every sort: {number}", origin=ORIGIN)
        (folder / f"{name}.toml").write_text(HEADER.format(told=told) + text)


def chosen(drawn: list[DrawnScenario]) -> list[DrawnScenario]:
    """So many that no pair is missing that occurs in any."""
    left = set().union(*(one.pairs for one in drawn))
    found = []
    while left:
        best = max(drawn, key=lambda one: len(one.pairs & left))
        left -= best.pairs
        found.append(best)
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))
