"""Plants mistakes that nobody had tried, and asks what the gate says.

    python reports/vllm/unknown.py reports/vllm/unknown.jsonl [--only WORD] [--runner v1]
        [--minutes M] [--scenario NAME ...] [--checkouts]
    python reports/vllm/unknown.py reports/sglang/unknown.jsonl --engine sglang --checkouts

The mistakes are those of the file OUT.toml beside the records. Each is made in a started engine, as
`racegate vllm mutate` does, in one scenario after the other of those that run the changed lines,
until one notices it: with what the gate prints of that scenario first. `--minutes M` begins no
scenario behind that; `--scenario NAME` (can be repeated) takes those alone. With `--checkouts` each
is made in a copy of the release in its place, which is gated as `mistakes.py` does, with all
scenarios until the first finding (`--exitfirst`). One record a line, and a page beside it; mistakes
that have a record are not planted again.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from io import StringIO
from itertools import chain
from math import inf
from pathlib import Path
from textwrap import shorten, wrap
from time import monotonic

import msgspec
from mistakes import COLUMNS, RELEASE, RELEASES, SCRIPTS, Mistake, gate, shown
from rich.console import Console

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign
from racegate.history.gates.results import gated
from racegate.history.outcome import RunResult
from racegate.jobs.foreign.edited import EditedRelease
from racegate.jobs.foreign.releases import open_release
from racegate.report.targets.results import print_target_gate
from racegate.scenario.files import load_for
from racegate.scenario.spec import Scenario
from racegate.targets.common.wire import SourceEdit
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.wire import StateMode

# Scenarios that run much, so that most mistakes are noticed in the first ones.
FIRST = (
    "preemption_for_blocks",
    "sampled_row_resumed",
    "structured_output",
    "penalties_and_seeds",
    "sampled_rows_swapped",
    "finish_and_condense",
    "every_mix_of_rows",
    "step_without_drafts",
    "fresh_blocks_in_consecutive_steps",
)
SCREEN_LINES = 24  # of a terminal that nobody has made larger
PAGE = """\
# Mistakes in {title} {release} that nobody had tried

Written by `python reports/vllm/unknown.py {command}`:
each mistake of [unknown.toml](unknown.toml), written before the first of its batch was judged, and
none changed or left out since. Where one undoes a repair that was merged or offered, that is its
*origin*. {checkouts} were made in a checkout, whose gate ran all scenarios, or those up to the
first finding (`--checkouts`); {confirmed} of these were noticed. {started} were made in a started
engine and judged in those of the recorded scenarios that run their lines. All were judged
beside the release from the recorded runs (`--runs 0`). {open} of the file are not judged yet.

**{noticed} of {all} are noticed as drawn**; {quiet} of those that are not change nothing, or need
what the column says. Below the table is what the gate prints of each whose output was kept, at
most {lines} lines.

| mistake | origin | kind | options | noticed in | the first thing found |
| --- | --- | --- | --- | --- | --- |"""


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mistake. scenario: that noticed it; what: it said first, or why none did

    code: what the gate ends with; screen: what it prints first, if it was kept
    in_checkout: whether it was made in a checkout, and not in a started engine
    """

    name: str
    scenario: str = ""
    what: str
    code: int
    screen: str = ""
    in_checkout: bool = False


def main() -> None:
    """Plants what has no record yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--checkouts", action="store_true")
    parser.add_argument("--engine", choices=RELEASES, default="vllm")
    parser.add_argument("--runner", choices=("v1", "v2"), default="")
    parser.add_argument("--minutes", type=float, default=inf)
    parser.add_argument("--scenario", action="append", default=[])
    given = parser.parse_args()
    until = monotonic() + 60 * given.minutes
    known = {one.name for one in records(given.out)}
    planned = mistakes(given.out)
    by_options: defaultdict[tuple[str, ...], list[Mistake]] = defaultdict(list)
    for mistake in planned:
        is_asked = given.only in mistake.name and given.runner in runner_of(mistake.options)
        if mistake.name not in known and is_asked:
            by_options[mistake.options].append(mistake)
    for mistake in chain(*by_options.values()) if given.checkouts else ():
        if monotonic() < until:
            add(given.out, judged_checkout(mistake, given.engine))
    for options, planted in by_options.items() if not given.checkouts else ():
        able = ordered(cell_of(options))
        tried = [one for one in able if not given.scenario or one.name in given.scenario]
        for judged in in_started(cell_of(options), planted, tried, until=until):
            add(given.out, judged)
    told = page(records(given.out), planned, given.engine)
    given.out.with_suffix(".md").write_text(told)


def add(out: Path, judged: Unknown) -> None:
    """Keeps a record."""
    with out.open("ab") as file:
        file.write(msgspec.json.encode(judged) + b"\n")
    print(f"{judged.code} {judged.name}: {judged.scenario} {judged.what}", flush=True)


def mistakes(out: Path) -> list[Mistake]:
    """Those of the file beside the records, in its order."""
    text = out.with_suffix(".toml").read_text()
    return msgspec.convert(tomllib.loads(text)["mistake"], list[Mistake])


def runner_of(options: tuple[str, ...]) -> str:
    """Which of vLLM's a gate asks for."""
    return dict(zip(options[::2], options[1::2], strict=True)).get("--runner", "v1")


def records(path: Path) -> list[Unknown]:
    """What was judged before."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Unknown) for line in lines]


def cell_of(options: tuple[str, ...]) -> Cell:
    """What the options of a gate ask for."""
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    asked = {"runner": "v1", **dict(zip(names, options[1::2], strict=True))}
    asked["mode"] = asked.pop("cache_mode", StateMode.NONE)
    return msgspec.convert({"of": "vllm", "release": RELEASE, **asked}, Cell)


def in_started(
    cell: Cell, planted: list[Mistake], tried: list[Scenario], *, until: float
) -> Iterator[Unknown]:
    """What a started engine says of each, edited in forked processes: one scenario after the other,
    in each of which all are tried that no other has noticed. until: no further scenario is begun
    """
    left, ran = {one.name: one for one in planted}, Counter[str]()
    with open_release(cell, log=Path(os.devnull)) as opened:
        edited = EditedRelease(opened)
        for scenario in tried:
            if not left or monotonic() > until:
                break
            edited.record([scenario], lambda name: print(f"recorded {name}", flush=True))
            for mistake in list(left.values()):
                judged = judged_in(edited, scenario.name, mistake)
                ran[mistake.name] += judged is not None
                if judged is not None and judged.code:
                    del left[mistake.name]
                    yield judged
    for name in left if edited.recorded else ():
        run = f"{ran[name]} of {len(edited.recorded)} scenarios that were recorded run it"
        yield Unknown(name=name, what=run, code=0)


def ordered(cell: Cell) -> list[Scenario]:
    """The scenarios that it can run, those first that a name in FIRST begins."""
    found = [load_for("vLLM", file) for file in sorted(SCRIPTS.glob("*.toml"))]
    able = [one for one in found if not cell.cannot_run(one)]
    return sorted(able, key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST))


def judged_in(edited: EditedRelease, name: str, mistake: Mistake) -> Unknown | None:
    """What one recorded scenario says, None if it does not run the changed lines."""
    edit, lines = edit_of(mistake)
    if lines.isdisjoint(edited.recorded[name].lines.get(mistake.file, ())):
        return None
    result = edited.result(name, edit)
    if result is None:
        return Unknown(name=mistake.name, what="not in a started engine", code=4)
    if result.comparison is None:
        return Unknown(name=mistake.name, scenario=name, what=result.message, code=3)
    if result.comparison.code is not ExitCode.FINDING:
        return Unknown(name=mistake.name, scenario=name, what="", code=0)
    what = result.comparison.findings[0].message
    return Unknown(name=mistake.name, scenario=name, what=what, code=1, screen=screen_of(result))


def screen_of(result: RunResult) -> str:
    """What the gate prints of one scenario, as far as a terminal shows it."""
    console = Console(record=True, width=COLUMNS, file=StringIO())
    print_target_gate(console, gated([result]), benign=Benign.PASS)
    text = console.export_text().splitlines()
    return "\n".join(line.rstrip() for line in text[:SCREEN_LINES])


def edit_of(mistake: Mistake) -> tuple[SourceEdit, set[int]]:
    """The edit of the release's source, and the lines that it takes the place of."""
    release = VLLM.environment_of(RELEASE)
    (site,) = release.folder.glob("lib/python*/site-packages/vllm")
    content = (site / mistake.file).read_bytes()
    start = content.index(mistake.before.encode())
    end = start + len(mistake.before.encode())
    module = ".".join(Path("vllm", mistake.file).with_suffix("").parts)
    top = content.count(b"\n", 0, start) + 1
    lines = {*range(top, content.count(b"\n", 0, end - 1) + 2)}
    return SourceEdit(module, start, end, mistake.after), lines


def judged_checkout(mistake: Mistake, engine: str) -> Unknown:
    """What the gate of a checkout that has the mistake says first."""
    gated = gate(mistake, "--exitfirst", engine=engine)
    sides = ((one["scenario"], one["comparison"]) for one in gated.results)
    found = ((name, (side["changed"], *side["new"])) for name, side in sides if side)
    said = ((name, one["message"]) for name, findings in found for one in findings if one)
    scenario, what = next(said, ("", gated.end))
    return Unknown(
        name=mistake.name,
        scenario=scenario,
        what=what,
        code=gated.code,
        screen="\n".join(line.rstrip() for line in gated.text.splitlines()[:SCREEN_LINES]),
        in_checkout=True,
    )


def page(done: list[Unknown], planned: list[Mistake], engine: str) -> str:
    """The table of all records, and their screens, as Markdown."""
    by_name = {one.name: one for one in planned}
    package, release = RELEASES[engine]
    options = "" if package is VLLM else f" --engine {engine} --checkouts"
    rows, screens = [], []
    for one in done:
        mistake = by_name[one.name]
        nothing = mistake.nothing.get("none", "nobody has looked")
        found = shown(one.what) if one.code == 1 else f"({one.what}; {nothing})"
        rows.append(
            f"| {one.name} | {mistake.origin} | {mistake.kind} | {' '.join(mistake.options)} "
            f"| {one.scenario if one.code == 1 else 'no'} | {found} |"
        )
        if one.screen:
            parts = (_as_shown(line) for line in one.screen.split("\n"))
            lines = [f"    {part}".rstrip() for part in chain(*parts)]
            screens += ["", "### " + shorten(one.name, 110, placeholder=" ..."), "", *lines]
    figures = PAGE.format(
        title=package.title,
        release=release,
        command=f"reports/{engine}/unknown.jsonl{options}",
        lines=SCREEN_LINES,
        noticed=sum(one.code == 1 for one in done),
        all=len(done),
        quiet=sum(one.code != 1 and "none" in by_name[one.name].nothing for one in done),
        open=len(by_name) - len(done),
        checkouts=sum(one.in_checkout for one in done),
        started=sum(not one.in_checkout for one in done),
        confirmed=sum(one.in_checkout and one.code == 1 for one in done),
    )
    return "\n".join([figures, *rows, "", "## First screens", *screens, ""])


def _as_shown(line: str) -> list[str]:
    """As a terminal shows it, which has so many columns."""
    return wrap(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False) or [""]


if __name__ == "__main__":
    main()
