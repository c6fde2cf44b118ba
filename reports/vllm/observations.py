"""What is observed of vLLM's runners, and what each value is compared with.

    python reports/vllm/observations.py reports/vllm/observations.json [--release 0.33.0]
        [--runner v1] [--mode none]

Runs every scenario once in each way to run the release, with nothing held, and counts which fields
were observed and how many of their values were compared with what is true. Then makes one kind of
the runner's own values wrong after the other, or what the scheduler tells it, in a step in which
everything decodes and in one in which prompts begin and go on: a field that none of these changes
is dead, but where it had the same value in all scenarios. What is in the file already is kept, but
for the ways that are asked for. Writes a page beside the file, and exits with 1 where a field that
the file had is observed no more.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

import msgspec

from racegate.interpose.outcome import Ending, Plan
from racegate.jobs.foreign.releases import open_release
from racegate.scenario.files import load_for
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.client import Engine
from racegate.targets.common.wire import KEPT, Observed, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

ROOT = Path(__file__).parents[2]
RUN_S = 900.0  # a run that this ends has not shown what it would
PROSE_COLUMNS = 100
ENOUGH = 2  # values of a field: it has more than one
# Names of tensors and arrays of the runners, of which one kind is made wrong at a time, and what
# the scheduler tells them.
SPOILT = (
    "scheduled drafts",
    "scheduled tokens",
    "scheduled requests",
    "temperature",
    "top_[pk]",
    "penalt",
    "seeds",
    "prev_positions",
    "last_sampled|prev_sampled|draft_token",
    "token_ids_cpu|all_token_ids",
    "num_computed",
    "num_tokens_no_spec|num_prompt_tokens|prompt_len|prefill_len|total_len",
    "next_prefill_tokens",
    "max_seq_len",
    "block_table",
    "seq_lens",
    "query_start_loc",
    "positions",
    "input_ids",
    "slot_mapping",
    "num_accepted",
    "num_decode_draft|num_draft_tokens",
    "bin_counts|bin_mask",
    "bitmask",
)
DECODING = (
    Request(
        name="A", arrive=0, prompt=(5, 6, 7, 8), max_tokens=40, accepts=(2,),
        temperature=0.05, seed=3,
    ),
    Request(name="B", arrive=1, prompt=(9, 10, 11), max_tokens=40, accepts=(3,), grammar_modulus=2),
)  # fmt: skip
LAST = Request(name="C", arrive=2, prompt=(30, 31, 32), max_tokens=40, accepts=(1,))
# One goes on with its prompt, and two begin with theirs, beside two that decode.
LONG = tuple(place * 13 % 97 for place in range(300))
PROMPTS = (
    msgspec.structs.replace(LAST, arrive=3, prompt=LONG),
    msgspec.structs.replace(LAST, name="D", arrive=4),
    msgspec.structs.replace(LAST, name="E", arrive=4, prompt=(7, 8, 9, 10, 11, 12)),
)
PROBES = {
    "decoding": Scenario(
        name="decoding",
        title="three requests that decode, sampled and under a grammar",
        steps_max=9,
        requests=(*DECODING, LAST),
    ),
    "prompts": Scenario(
        name="prompts",
        title="prompts that begin and go on, beside requests that decode",
        steps_max=9,
        requests=(*DECODING, *PROMPTS),
    ),
}
PAGE = """\
# What is observed of vLLM's runners

    {command}

runs every scenario of `scenarios/vllm` once in each way to run a release, with nothing held.
*truth*: compared with what follows from the scenario and the scheduler's choices, so many values;
*base*: compared with the base only (`--against`); *dead*: none of {kinds} kinds of the runner's own
values, and of what the scheduler tells it, changed it when they were made wrong, one at a time, in
a step in which everything decodes and in one with prompts; *one value*: likewise, but there was
nothing to change: in all scenarios it has the same value (`None`, what a feature has that is off).
A field without an entry is not observed there. Values that were not true: {untrue}.

| observation | {titles} |
|---|{rules}|"""


class FieldCount(msgspec.Struct, frozen=True, kw_only=True):
    """One field. observed: how often, 0 if its truth alone is told under this name; compared:
    values of it, with the truth; shown: kinds of values that change it when they are wrong
    is_constant: it has one value in all scenarios
    """

    observed: int
    compared: int
    shown: tuple[str, ...]
    is_constant: bool = False


class CellCount(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a release. untrue: what was not true, by scenario

    older: of which commit, where it was not counted again with the others, and knows no constants
    """

    release: str
    runner: str
    mode: str
    fields: dict[str, FieldCount]
    untrue: dict[str, list[str]]
    skipped: dict[str, str]
    older: str = ""

    @property
    def way(self) -> tuple[str, str, str]:
        """What tells it from the others."""
        return (self.release, self.runner, self.mode)


def main() -> None:
    """Counts what is asked for, and writes the page of all that is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--release", default="0.33.0")
    parser.add_argument("--runner", type=ModelRunner, action="append")
    parser.add_argument("--mode", type=StateMode, action="append")
    given = parser.parse_args()
    known: dict[tuple[str, str, str], CellCount] = {}
    if given.out.exists():
        cells = msgspec.json.decode(given.out.read_bytes(), type=list[CellCount])
        known = {cell.way: cell for cell in cells}
    lost: list[str] = []
    for runner in given.runner or list(ModelRunner):
        for mode in given.mode or [StateMode.NONE, StateMode.ALIGN]:
            counted = count(Cell(release=given.release, runner=runner, mode=mode))
            lost += lost_since(known.get(counted.way), counted)
            known[counted.way] = counted
            text = msgspec.json.format(msgspec.json.encode(sorted(known.values(), key=_way)))
            given.out.write_bytes(text + b"\n")
    given.out.with_suffix(".md").write_text(page(sorted(known.values(), key=_way)))
    if lost:
        raise SystemExit("no run observes any more: " + ", ".join(lost))


def lost_since(before: CellCount | None, now: CellCount) -> list[str]:
    """Fields that were observed before and are not now: whoever watched them may have been
    forgotten, and nothing else says so.
    """
    fields = {} if before is None else before.fields
    had = {name for name, one in fields.items() if one.observed}
    have = {name for name, one in now.fields.items() if one.observed}
    return [f"{name} ({now.runner} {now.mode})" for name in sorted(had - have)]


def _way(cell: CellCount) -> tuple[str, str, str]:
    return cell.way


def count(cell: Cell) -> CellCount:
    """All scenarios, then what is made wrong."""
    observed: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    values: defaultdict[str, set[str]] = defaultdict(set)
    untrue: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    with open_release(cell, log=Path("/dev/null"), run_s=RUN_S) as opened:
        for file in sorted((ROOT / "scenarios" / "vllm").glob("*.toml")):
            scenario = load_for("vLLM", file)
            if reason := cell.cannot_run(scenario):
                skipped[scenario.name] = reason
                continue
            run = whole(opened.engine.run(scenario, Plan(is_recording=False)))
            for name, value in fields_of(run):
                observed[name] += 1
                if len(values[name]) < ENOUGH:
                    values[name].add(msgspec.json.encode(value).decode())
            compared += Counter(run.compared)
            if run.untrue:
                untrue[scenario.name] = [f"step {one.step}: {one.what}" for one in run.untrue]
        shown = shown_by(opened.engine)
    names = sorted({*observed, *compared})
    return CellCount(
        release=cell.release,
        runner=cell.runner,
        mode=cell.mode,
        fields={
            name: FieldCount(
                observed=observed[name],
                compared=compared[name],
                shown=tuple(kind for kind, changed in shown.items() if name in changed),
                is_constant=len(values[name]) == 1,
            )
            for name in names
        },
        untrue=untrue,
        skipped=skipped,
    )


def fields_of(run: ReleaseRun) -> Iterator[tuple[str, object]]:
    """Every field of every observation, by boundary and name, with its value."""
    for one in run.inner:
        _, _, boundary = one.name.removeprefix("step ").partition(" ")
        values = msgspec.json.decode(one.preview, type=dict[str, object])
        if boundary.startswith(f"{KEPT} "):  # as many fields as the release has
            yield boundary, values
            continue
        for field, value in values.items():
            if field == "rows":
                yield "rows", value
            elif (boundary, field) == ("scheduled", "requests"):
                yield "scheduled.computed", value
                yield "scheduled.blocks", value
            elif field not in ("group", "size", "step", "asked"):
                yield f"{boundary}.{field}", value


def shown_by(engine: Engine) -> dict[str, set[str]]:
    """By the kind of value that is made wrong: the fields that change, in either probe."""
    plan = Plan(is_recording=False)
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for probe in PROBES.values():
        base = by_field(whole(engine.run(probe, plan)))
        for one in Observed:
            shown[one.value] |= changed(base, by_field(whole(engine.run(probe, plan, plant=one))))
        for kind in SPOILT:
            spoilt = engine.run(probe, plan, spoils=kind)
            if spoilt.ending is Ending.LOST:  # it was led astray, and shows nothing
                print(f"{probe.name}, {kind} made wrong: {spoilt.message}", flush=True)
            else:
                shown[kind] |= changed(base, by_field(whole(spoilt)))
    return shown


def whole(run: ReleaseRun) -> ReleaseRun:
    """The same run. Raises SystemExit if it took too long or was lost, for nothing follows then."""
    if run.ending in (Ending.TIMED_OUT, Ending.LOST):
        raise SystemExit(f"a run was {run.ending}: {run.message}")
    return run


def by_field(run: ReleaseRun) -> dict[str, list[object]]:
    """The values of each field, in their order."""
    found: dict[str, list[object]] = {}
    for name, value in fields_of(run):
        found.setdefault(name, []).append(value)
    return found


def changed(base: dict[str, list[object]], other: dict[str, list[object]]) -> set[str]:
    """Fields of which a value is another; a run that ended sooner has fewer."""
    return {
        name
        for name, values in other.items()
        if any(value != its for value, its in zip(values, base.get(name, ()), strict=False))
    }


def page(cells: list[CellCount]) -> str:
    """The table, as Markdown."""
    titles = [f"{cell.release} {cell.runner.upper()} {cell.mode}" for cell in cells]
    names = sorted({name for cell in cells for name in cell.fields})
    wrong = sum(len(lines) for cell in cells for lines in cell.untrue.values())
    head = PAGE.format(
        command="python reports/vllm/observations.py reports/vllm/observations.json",
        kinds=len(SPOILT) + len(Observed),
        untrue=wrong or "none",
        titles=" | ".join(titles),
        rules="|".join("---" for _ in titles),
    )
    rows = [f"| {name} | {' | '.join(entry(cell, name) for cell in cells)} |" for name in names]
    return "\n".join([head, *rows, "", *told_older(cells), *told_untrue(cells)])


def entry(cell: CellCount, name: str) -> str:
    """What a field is compared with in one way to run a release."""
    one = cell.fields.get(name)
    if one is None:
        return ""
    against = f"truth, {one.compared}" if one.compared else "base"
    is_dead = one.observed and not one.shown
    dead = "one value" if one.is_constant else "dead"
    return f"{against}, {dead}" if is_dead else against


def told_older(cells: list[CellCount]) -> Iterator[str]:
    """Columns that know less than the others."""
    for cell in cells:
        if cell.older:
            text = f"{' '.join(cell.way)} was counted by {cell.older}, with fewer wrong values."
            yield fill(text, PROSE_COLUMNS)
            yield ""


def told_untrue(cells: list[CellCount]) -> Iterator[str]:
    """What was not true in an unmodified release."""
    for cell in cells:
        for name, lines in cell.untrue.items():
            text = f"Not true in {' '.join(cell.way)}, `{name}`: {'; '.join(lines)}."
            yield fill(text, PROSE_COLUMNS)
            yield ""


if __name__ == "__main__":
    main()
