"""The page of a profile: where the time of each kind of run goes."""

from __future__ import annotations

from itertools import groupby

from racegate.measure.bench.virtual import BenchEntry, BenchResult

_PAGE = """# Where the time of a run goes

    {command}

{environment}.

The scenario `bench-10x4`: 10 steps, 4 requests, exact. CPU time of one run, from samples of its
stack: a sample counts for the innermost function of racegate, so the time of NumPy is that of
whoever calls it. Parts below one percent are left out. A call of the device includes what happens
in it, kernels too.

{jobs}
"""


def render_profile(profile: BenchResult, *, command: str) -> str:
    """A section for each job, with a table for each way to take its time apart."""
    known = profile.environment
    environment = ", ".join(
        f"{name} {known[name]}" for name in ("commit", "python", "numpy", "system", "cpu")
    )
    jobs = groupby(profile.results, key=lambda entry: entry.name.partition("/")[0])
    sections = [_section(name, list(entries)) for name, entries in jobs]
    said = environment[0].upper() + environment[1:]
    return _PAGE.format(command=command, environment=said, jobs="\n\n".join(sections))


def _section(name: str, entries: list[BenchEntry]) -> str:
    """A job: the whole, by event, then its parts."""
    whole, event, *parts = entries
    said = f"## {name}\n\n{whole.detail[0].upper()}{whole.detail[1:]}: **{whole.value:,.0f} us**, "
    said += f"{event.value:.1f} us for each of the {event.detail.removeprefix('by ')}."
    ways = groupby(parts, key=lambda entry: entry.name.split("/")[1])
    return "\n\n".join([said, *(_table(way, list(found)) for way, found in ways)])


def _table(way: str, entries: list[BenchEntry]) -> str:
    rows = [
        f"| {entry.name.split('/', 2)[2]} | {entry.value:,.0f} | {entry.detail} |"
        for entry in entries
    ]
    return "\n".join([f"| {way} | us | share |", "|---|---:|---:|", *rows])
