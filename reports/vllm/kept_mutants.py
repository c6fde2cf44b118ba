"""A page of mutants that were judged so far, from the file that `racegate vllm mutate --keep` adds
to: for a sample that was not finished.

    python reports/vllm/kept_mutants.py reports/vllm/mutants_v1_fresh.jsonl --sample 150 --seed 2

Mutants that cannot be edited in a started engine are in no figure. Writes a page beside the file.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from racegate.measure.evaluation.source.kept import lines_of
from racegate.measure.evaluation.source.results import (
    SourceFate,
    SourceResult,
    load_equivalents,
    score_of,
)

HERE = Path(__file__).parent
PAGE = """\
# Mutants of vLLM 0.33.0 v1 none, of a seed that nobody had looked at

    racegate vllm mutate --release 0.33.0 --sample {sample} --seed {seed} --keep {file} \\
        --equivalent reports/vllm/equivalent.toml --missing reports/vllm/missing.toml
    {command}

The sample was not finished: {tried} mutants of it were judged, the first that seed {seed} draws.
Of those that matter **{killed} of {matter} were noticed ({score:.1f} %)**. {equivalent} change
nothing, {unedited} more could not be edited while the engine runs. What those that were missed
lack: {lacks}. Without those that lack another configuration it is {killed} of {shown}
({shown_score:.1f} %). Observations were chosen by the survivors of seed 0 before this sample was
drawn, but for the streams of operations, with which those that had survived were judged again, and
for the drafter's hidden states, which this run did not look at.

| what noticed it | mutants |
|---|---:|
{by}

## Missed

| where | before | after | what would notice it |
|---|---|---|---|
{missed}
"""


def main() -> None:
    """Reads the file and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    known = {one.key: one for _, one in lines_of(given.file, SourceResult)}
    judged = [one for one in known.values() if one.fate is not SourceFate.UNREACHED]
    reasons = _reasons(HERE / "equivalent.toml")
    found = [_with_reason(one, reasons) for one in judged]
    unedited = len(known) - len(judged)
    text = page(found, given, unedited, _reasons(HERE / "missing.toml"))
    given.file.with_suffix(".md").write_text(text)


def _reasons(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Of the entries of a file, by what they look like."""
    entries = load_equivalents(path).entries
    return {(one.file, one.scope, one.before, one.after): one.reason for one in entries}


def _looks(one: SourceResult) -> tuple[str, str, str, str]:
    return (one.file, one.scope, one.before, one.after)


def _with_reason(one: SourceResult, reasons: dict[tuple[str, str, str, str], str]) -> SourceResult:
    """The result, as equivalent if it survived and somebody says why."""
    reason = reasons.get(_looks(one), "")
    if one.fate is not SourceFate.SURVIVED or not reason:
        return one
    return msgspec.structs.replace(one, fate=SourceFate.EQUIVALENT, reason=reason)


def page(
    found: Sequence[SourceResult],
    given: argparse.Namespace,
    unedited: int,
    missing: dict[tuple[str, str, str, str], str],
) -> str:
    """The page. missing: what would notice a survivor, by what it looks like"""
    score = score_of(found)
    missed = [one for one in found if one.fate is SourceFate.SURVIVED]
    lacks = Counter(missing[_looks(one)].partition(":")[0] for one in missed)
    matter = score.mutants - score.equivalent
    shown = matter - lacks["configuration"]
    by = Counter(one.how.partition(" ")[0] or "no end" for one in found if one.how)
    rows = sorted(missed, key=lambda one: (one.file, one.line))
    return PAGE.format(
        sample=given.sample,
        seed=given.seed,
        file=given.file,
        command=f"python reports/vllm/kept_mutants.py {given.file} --seed {given.seed}",
        tried=score.mutants,
        killed=score.killed,
        matter=matter,
        score=100 * score.killed / matter,
        equivalent=score.equivalent,
        unedited=unedited,
        lacks=", ".join(f"{what} ({count})" for what, count in sorted(lacks.items())),
        shown=shown,
        shown_score=100 * score.killed / shown,
        by="\n".join(f"| {what} | {count} |" for what, count in by.most_common()),
        missed="\n".join(_row(one, missing[_looks(one)]) for one in rows),
    )


def _row(one: SourceResult, reason: str) -> str:
    cells: Iterable[str] = (f"`{one.file}:{one.line}` {one.scope}", one.before, one.after, reason)
    escaped = (
        cell.replace("|", "&#124;").replace("<", "&#60;").replace("[", "&#91;") for cell in cells
    )
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    main()
