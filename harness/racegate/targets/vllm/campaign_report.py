"""A campaign over seeds in the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from racegate.scenario.untrusted.console import line
from racegate.targets.vllm.campaign import Campaign, SeedVerdict


def seed_line(one: SeedVerdict) -> str:
    """What one seed gave, in a line."""
    text = f"seed {one.seed}: {one.verdict}, {one.conflicts} conflicts, {one.runs} runs under holds"
    return "; ".join((text, *one.harm, *one.unmet))


def print_campaign(console: Console, found: Campaign) -> None:
    """Verdicts by how often, each kind of harm with its first seed, and what it took."""
    cell = found.cell
    console.print(f"vLLM {cell.place} {cell.runner} {cell.mode}")
    for verdict, count in Counter(one.verdict for one in found.seeds).most_common():
        console.print(f"{verdict}: {count}")
    first: dict[str, SeedVerdict] = {}
    for one in found.seeds:
        for harm in one.harm:
            first.setdefault(harm, one)
    for harm, one in first.items():
        console.print(line(("HARM", "bold red"), f" {harm}, first with seed {one.seed}"))
    console.print(
        f"{len(found.seeds)} scenarios, {found.runs} runs, {found.cpu_s:g} CPU s: "
        f"{found.runs_per_minute:.0f} runs a minute and core"
    )
