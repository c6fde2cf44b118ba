"""The table of a history: versions down, scenarios across, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from racegate.jobs.triage.bisect import Shows
from racegate.jobs.versions.bisecting import AskedRelease, ReleaseRange
from racegate.jobs.versions.cells import CellReport, ScenarioReport
from racegate.jobs.versions.faulty import FaultyRange, RangeBound
from racegate.jobs.versions.watching import WatchedVersion
from racegate.report.objects import HistoryObject
from racegate.scenario.untrusted.text import printable_markdown

MESSAGE_MAX = 80
NOT_RUN = "cannot be run"


def print_history(console: Console, found: HistoryObject) -> None:
    """A line for each way to run each version; why one cannot be run stands below."""
    heads, rows = rows_of(found)
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for cell in found.cells:
        if cell.cannot:
            console.print(f"{title_of(cell)}: {cell.cannot}", markup=False)


def render_history(found: HistoryObject) -> str:
    """The same as a table of Markdown, with a list of what cannot be run."""
    heads, rows = rows_of(found)
    lines = [heads, tuple("---" for _ in heads), *rows]
    text = ["| " + " | ".join(map(printable_markdown, line)) + " |" for line in lines]
    reasons = [
        f"* {printable_markdown(title_of(cell))}: {printable_markdown(cell.cannot)}"
        for cell in found.cells
        if cell.cannot
    ]
    return "\n".join([*text, *(["", *reasons] if reasons else []), ""])


def rows_of(found: HistoryObject) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heads of the columns, and the rows."""
    has_settings = any(cell.settings for cell in found.cells)
    heads = ("version", *(["run as"] if has_settings else []), "torch", *found.names)
    rows = [
        (
            cell.release,
            *([" ".join(cell.settings)] if has_settings else []),
            cell.torch.partition("+")[0],
            *(_said(cell, name) for name in found.names),
        )
        for cell in found.cells
    ]
    return heads, rows


def title_of(cell: CellReport) -> str:
    """The version and how it is run."""
    return " ".join((cell.release, *cell.settings))


def _said(cell: CellReport, name: str) -> str:
    if name in cell.scenarios:
        return verdict_text(cell.scenarios[name])
    return NOT_RUN if cell.cannot else ""


def verdict_text(one: ScenarioReport) -> str:
    """The verdict, with the runs under holds that it took or what is behind it."""
    if one.message:
        return f"{one.verdict}: {one.message[:MESSAGE_MAX]}"
    if one.wrong:
        return f"{one.verdict}, nothing held"
    return f"{one.verdict}, {one.runs} runs" if one.runs else one.verdict


def render_watched(found: Sequence[WatchedVersion]) -> str:
    """Versions that are watched as a table of Markdown, and what is new and gone in each."""
    lines = [
        "# Versions that are watched",
        "",
        "Written by `racegate watch`: each program on each version that the store knows, beside",
        "the version before it; findings that are new there, gone, and kept.",
        "",
        "| program | package | verdict | beside the version before | new | gone | kept |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for one in found:
        beside = f"{one.change}, {one.before}" if one.before else str(one.change)
        cells = (one.name, f"{one.package} {one.version}", one.said, beside)
        counts = (str(len(names)) for names in (one.new, one.gone, one.kept))
        lines.append("| " + " | ".join((*map(printable_markdown, cells), *counts)) + " |")
    return "\n".join([*lines, ""])


def watched_lines(one: WatchedVersion) -> list[str]:
    """What a new version came to, for those who wait."""
    after = f", after {one.before}" if one.before else ""
    lines = [f"{one.name}: {one.package} {one.version}{after}: {one.change}: {one.said}"]
    lines += [f"  NEW   {signature}" for signature in one.new]
    return lines + [f"  gone  {signature}" for signature in one.gone]


def render_range(found: FaultyRange) -> str:
    """From which release to which one a program races, as text."""
    lines = _asked(found.asked)
    for end, verb, last in (
        (found.brought, "brought", "oldest"),
        (found.repaired, "repaired", "newest"),
    ):
        told = _end(end, verb) if end.beyond else f"{end.bad}, the {last}, has it"
        lines.append(f"{found.package}: {told}")
    lines.append(f"{len(found.asked)} of {found.releases} releases were judged")
    return "\n".join(lines)


def _end(end: RangeBound, verb: str) -> str:
    if end.shows is Shows.SKIPPED:
        return f"{end.bad} has it, {end.beyond} cannot be judged: {end.said}"
    brings = verb == "brought"
    first = end.bad if brings else end.beyond
    suspects = [*end.between, first] if brings else [first, *end.between]
    which = f"one of {', '.join(suspects)}" if end.between else first
    return f"{which} {verb} it: {end.bad} has it, {end.beyond} has not"


def _asked(asked: Sequence[AskedRelease]) -> list[str]:
    return [f"{one.release:12} {one.shows:8} {one.said}" for one in asked]


def render_origin(found: ReleaseRange) -> str:
    """What a bisection of releases came to, as text."""
    lines = _asked(found.asked)
    verb = "brought" if found.is_brought else "repaired"
    first = found.bad if found.is_brought else found.good
    suspects = [*found.between, first] if found.is_brought else [*found.between[::-1], first]
    which = first if not found.between else f"one of {', '.join(suspects)}"
    lines.append(
        f"{found.package} {which} {verb} it: {found.good} has no race, {found.bad} has; "
        f"{len(found.asked)} of {found.releases} releases were judged"
    )
    return "\n".join(lines)
