"""A page of mutants that were judged so far, from the file that `racegate vllm mutate --keep` adds
to: for a sample that was not finished.

    python reports/vllm/kept_mutants.py reports/vllm/mutants_v1_fresh.jsonl --sample 150 --seed 2

Mutants that cannot be edited in a started engine are in no figure. Writes a page beside the file.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill

import msgspec

Looks = tuple[str, str, str, str]  # file, scope, before, after: what a mutant is known by
HERE = Path(__file__).parent
# By the first word of how a mutant was noticed.
WORDS = {"CHANGED": "a changed value", "NEW": "a new conflict", "no": "no end"}
NO_EDIT = "SyntaxError"  # of what an operator made that has been mended: it is no mutant
UNREAD = "nobody has looked"
ALIKE = "the same value in every scenario"  # as the release's own expression has
# By runner and seed.
NOTES = {
    ("v1", 2): """Observations were chosen by the survivors of seed 0 before this sample was
drawn. **As drawn it was 60 of 85 (70.6 %)**: the rest came from reading these survivors, by other
settings that they name, and by scenarios and observations for the mistakes that they stand for.
Later ones were judged again, each in the one or two scenarios that are for it (`--scenarios` with
a folder of these), in settings that stand for what they lack (`--drafter model`, `--throttle 3`,
`--layers windows`, `--connector failing` and others, above); entries of `equivalent.toml` may hold
for one runner alone.""",
    ("v2", 3): """Observations were chosen by the survivors of seed 0 and by those of
runner V1 before this sample was drawn. **As drawn it was 69 of 116 (59.5 %)**: the rest came from
reading these survivors, by other settings that they name (in a few scenarios each; `--also` takes
all), and by scenarios and observations for the mistakes that they stand for (`full_batch`,
`four_tokens_beside_none`, `as_long_as_the_model`,
`last_chunk_of_one_token`; lengths of layers' metadata; what pads a graph).
Later ones were judged again, each in the one or two scenarios that are for it (`--scenarios` with
a folder of these), in settings that stand for what they lack (`--drafter model`, `--throttle 3`,
`--layers windows`, `--connector failing`, `--graphs few`, `--images encoded` and others, above);
entries of `equivalent.toml` may hold for one runner alone.""",
    ("v2", 4): """**As drawn it was 4 of 10 (40.0 %)**: few mutants, and judged in twelve of the
scenarios alone (`--scenarios` with a folder of these), since the machine was busy:
`abort_in_flight`, `budget_used_up`, `chunk_in_moved_row`, `finish_and_condense`,
`four_tokens_beside_none`, `full_batch`, `penalties_and_seeds`, `preemption_for_blocks`,
`rows_change_hands`, `sampled_without_drafts`, `step_without_drafts`, `structured_output`. The rest
came from reading the survivors: `given_up_late`, `--layers windows`, and a connector.""",
    ("v2", 5): """**As drawn it was 28 of 40 (70.0 %)**, and 29 with the first of three settings
that were chosen before (`--graphs full --engine-arg prefill_schedule_interval=3 --engine-arg
long_prefill_token_threshold=24`; the others, `--cache-mode align --connector simple` and
`--drafts 0 --positions mrope`, were not finished). It was judged in the twelve scenarios that give
each expression another value which any of them gives it, and run each line that any runs. The rest
came from reading the survivors: sizes of metadata, verification in chunks, scenarios that run
without drafts too; each was judged again in the scenario that is for it.
Later ones were judged again, each in the one or two scenarios that are for it (`--scenarios` with
a folder of these), in settings that stand for what they lack (`--drafter model`, `--throttle 3`,
`--layers windows`, `--connector failing` and others, above); entries of `equivalent.toml` may hold
for one runner alone.""",
    ("v1", 6): """**As drawn it was 46 of 65 (70.8 %)** in one setting, and 51 with two of three
others, in the scenarios of seed 5
of runner V2 and `chunk_in_moved_row` and `sampled_row_moves`. The three were chosen before:
`--drafts 0 --engine-arg prefill_schedule_interval=3 --engine-arg long_prefill_token_threshold=24`,
`--cache-mode align --connector simple`, `--graphs full` (this one was not run).
Later ones were judged again, each in the one or two scenarios that are for it (`--scenarios` with
a folder of these), in settings that stand for what they lack (`--drafter model`, `--throttle 3`,
`--layers windows`, `--connector failing` and others, above); entries of `equivalent.toml` may hold
for one runner alone.""",
    ("v1", 7): """By six seeds, 7 to 12, twenty of each (ten of seed 8). **As drawn it was 80 of 105
(76.2 %)**: in all of the scenarios of one setting, and what was missed in three others, which were
chosen before, on another machine; the command is that of the first seed. The rest came from
reading the survivors, by scenarios for the mistakes that they stand for (`rows_left_behind`,
`scored_prompts`, `stopped_before_a_block`, and a request more in `as_long_as_the_model`) and by
settings that they name; each was judged again (`--again`) in the one or two scenarios that are for
it.""",
    ("v2", 7): """By six seeds, 7 to 12. **As drawn it was 41 of 67 (61.2 %)**: as many of twenty as
nine minutes were enough for, in fourteen scenarios of one setting, on another machine; the command
is that of the first seed. The rest came from reading the survivors, each judged again (`--again`)
in the one or two scenarios that are for it, in settings that it needs (above): new were scenarios
(`penalties_in_a_used_place`, `given_up_in_its_prompt`, `tokens_of_a_second_block`,
`image_behind_text`), what the scheduler has of a request that ends (*at its end*), and a vocabulary
that is wider than a kernel's block.""",
    (
        "v2",
        13,
    ): """**As drawn it was 15 of 24 (62.5 %)**: as many of forty as a busy machine judged in
quarter of an hour, in sixteen scenarios of one setting that were chosen before (`--scenarios` with
a folder of these): `abort_in_flight`, `as_long_as_the_model`, `budget_used_up`,
`chunk_in_moved_row`, `every_mix_of_rows`, `four_tokens_beside_none`, `given_up_in_its_prompt`,
`given_up_late`, `last_chunk_of_one_token`, `paused_in_flight`, `penalties_and_seeds`,
`penalties_in_a_used_place`, `preemption_for_blocks`, `prompts_of_one_token`, `scored_prompts`,
`structured_output`. The others came from reading the survivors: each was judged again (`--again`)
in the scenario that is for it and the setting that it needs, or is a mutant of seed 3 too and was
judged there; `prompt_behind_a_cached_one` was made for one. Settings of production are named for
those that are missed.""",
    ("v1", 20): """**As drawn it was 104 of 150 (69.3 %)**, in all 57 scenarios of one setting. The
rest came from reading the survivors: those that another setting could show were judged in it
(above), in a few scenarios each, and five more in scenarios of the same setting, of which
`cleared_then_preempted` and `grammar_comes_late` are new; log probabilities of prompts, as clients
are given them, were not compared before. Three more were noticed once images were encoded for
runner V1 too, which of them the scheduler keeps was compared, and another request ran in the step
that tells of a load that failed. What needs yet another setting is named.""",
    ("v2", 20): """**As drawn it was 98 of 150 (65.3 %)**, in all 57 scenarios of one setting. The
rest came from reading the survivors: those that another setting could show were judged in it
(above), in a few scenarios each; `one_masked_token_each`, `one_penalty`, `cleared_then_preempted`,
`grammar_comes_late` and `sampled_from_the_first` were made for six of them. Those left were judged
again once the sampler was observed again, and which encoded images the scheduler keeps. What needs
yet another setting is named.""",
}
# Where a page is of several: by the first of them.
SEEDS = {7: "each of the seeds 7 to 12 draws"}
# Of seeds that nobody had looked at: the runner, the seeds, the first file, and how many were
# noticed as drawn, in one setting, of those that matter.
SAMPLES = (
    ("v2", "3", "mutants_v2_fresh", 69, 116),
    ("v2", "4", "mutants_v2_seed4", 4, 10),
    ("v2", "5", "mutants_v2_seed5", 28, 40),
    ("v2", "7 to 12", "mutants_v2_seeds7to12", 41, 67),
    ("v2", "13", "mutants_v2_seed13", 15, 24),
    ("v2", "20", "mutants_v2_seed20", 98, 150),
    ("v1", "2", "mutants_v1_fresh", 60, 85),
    ("v1", "6", "mutants_v1_seed6", 46, 65),
    ("v1", "7 to 12", "mutants_v1_seeds7to12", 80, 105),
    ("v1", "20", "mutants_v1_seed20", 104, 150),
)
AS_DRAWN = """Observations and scenarios were chosen by the survivors of earlier seeds. **These
are the figures as drawn**: whoever read the survivors has said what would notice them, and mended
nothing before they were counted."""
PAGE = """\
# Mutants of vLLM 0.33.0 {runner} none, of a seed that nobody had looked at

    racegate vllm mutate --release 0.33.0 --runner {runner} --sample {sample} --seed {seed} \\
        --keep {file} \\
        --equivalent reports/vllm/equivalent.toml --missing reports/vllm/missing.toml
    {command}

{tried} mutants of the sample were judged, the first that {seeds}.
Of those that matter **{killed} of {matter} are noticed ({score:.1f} %)**, {elsewhere} of them in
other settings alone{settings}.
{equivalent} change nothing, {unedited} more could not be edited while the engine runs. What those
that are missed lack: {lacks}.
Without those that lack another configuration it is {killed} of {shown} ({shown_score:.1f} %).{run}
{note}

| what noticed it | mutants |
|---|---:|
{by}

## Missed

| where | before | after | what would notice it |
|---|---|---|---|
{missed}
"""
RUN = """ {alike} of the missed never had another value than the release's own expression, in any
scenario and setting: these statements are run, the mistakes are not. Of those that are run it is
{killed} of {run} ({score:.1f} %)."""


class JudgedMutant(msgspec.Struct, frozen=True):
    """What a line of the file says of a mutant. how: it was noticed; settings: in which alone"""

    key: str
    file: str
    scope: str
    line: int
    before: str
    after: str
    fate: str
    how: str = ""
    settings: str = ""

    @property
    def looks(self) -> Looks:
        """What entries of the lists know it by."""
        return (self.file, self.scope, self.before, self.after)


def main() -> None:
    """Reads the file and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runner", choices=("v1", "v2"), default="v1")
    given = parser.parse_args()
    given.file.with_suffix(".md").write_text(page(in_all_settings(given.file, given.runner), given))


def in_all_settings(file: Path, runner: str) -> list[JudgedMutant]:
    """The mutants of a file, of which each that is missed there was judged in others beside it."""
    known = _lines(file)
    for path in sorted(file.parent.glob(f"{file.stem}-*.jsonl")):  # of --also
        settings = path.stem.removeprefix(f"{file.stem}-{runner}-")
        for key, one in _lines(path).items():
            if one.fate == "killed" and known[key].fate == "survived":
                known[key] = msgspec.structs.replace(one, settings=settings)
            elif one.how != ALIKE:  # whoever missed it has run it
                known[key] = msgspec.structs.replace(
                    known[key], how=known[key].how.replace(ALIKE, "")
                )
    return list(known.values())


class Tally(msgspec.Struct, frozen=True):
    """Mutants that matter: who is noticed, and who lacks another configuration of the engine. Keys
    of mutants
    """

    noticed: frozenset[str]
    matter: frozenset[str]
    lacks: frozenset[str]


def tally(found: Sequence[JudgedMutant], runner: str) -> Tally:
    """Of one sample, by what the lists say today."""
    equivalents, missing = (
        reasons(HERE / f"{name}.toml", runner) for name in ("equivalent", "missing")
    )
    judged = [one for one in found if one.fate != "unreached" and NO_EDIT not in one.how]
    noticed = frozenset(one.key for one in judged if one.fate == "killed")
    missed = [one for one in judged if one.fate == "survived" and one.looks not in equivalents]
    lacks = (one.key for one in missed if missing.get(one.looks, "").startswith("configuration"))
    return Tally(noticed, noticed | {one.key for one in missed}, frozenset(lacks))


def scores(folder: Path) -> list[tuple[str, ...]]:
    """For each sample, and for all of a runner: as drawn, and once its survivors were read."""
    rows: list[tuple[str, ...]] = []
    for runner in ("v2", "v1"):
        samples = [one for one in SAMPLES if one[0] == runner]
        tallies = [tally(in_all_settings(folder / f"{one[2]}.jsonl", runner), runner)
                   for one in samples]  # fmt: skip
        for (_, seeds, stem, *drawn), one in zip(samples, tallies, strict=True):
            rows.append((runner.upper(), f"[{seeds}]({stem}.md)", _score(*drawn), *_read([one])))
        drawn = [sum(one[at] for one in samples) for at in (3, 4)]
        rows.append((runner.upper(), "all", _score(*drawn), *_read(tallies)))
        distinct = Tally(*(frozenset().union(*(getattr(one, field) for one in tallies))
                           for field in Tally.__struct_fields__))  # fmt: skip
        rows.append((runner.upper(), "all that differ", "", *_read([distinct])))
    return rows


def _read(tallies: Sequence[Tally]) -> tuple[str, str]:
    """Once survivors were read, with those that lack another configuration and without."""
    noticed, matter, lacks = (
        sum(len(getattr(one, field)) for one in tallies) for field in Tally.__struct_fields__
    )
    return _score(noticed, matter), _score(noticed, matter - lacks)


def _score(noticed: int, matter: int) -> str:
    return f"{noticed} of {matter} ({100 * noticed / matter:.0f} %)"


def _lines(path: Path) -> dict[str, JudgedMutant]:
    """By key: the last line of a mutant counts."""
    lines = path.read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=tuple[str, JudgedMutant])[1] for line in lines]
    return {one.key: one for one in found}


def reasons(path: Path, runner: str) -> dict[Looks, str]:
    """Of the entries of a file, but for those that hold for the other runner alone."""
    entries = tomllib.loads(path.read_text())["equivalent"]
    return {
        (one["file"], one["scope"], one["before"], one["after"]): one["reason"]
        for one in entries
        if one.get("within", runner) == runner
    }


def page(found: Sequence[JudgedMutant], given: argparse.Namespace) -> str:
    """The page."""
    files = (HERE / f"{name}.toml" for name in ("equivalent", "missing"))
    equivalents, missing = (reasons(file, given.runner) for file in files)
    judged = [one for one in found if one.fate != "unreached" and NO_EDIT not in one.how]
    survived = [one for one in judged if one.fate == "survived"]
    missed = [one for one in survived if one.looks not in equivalents]
    killed = [one for one in judged if one.fate == "killed"]
    lacks = Counter(missing.get(one.looks, UNREAD).partition(":")[0] for one in missed)
    others = Counter(one.settings for one in killed if one.settings)
    matter = len(killed) + len(missed)
    shown = matter - lacks["configuration"]
    alike = sum(one.how == ALIKE for one in missed)
    by = Counter(one.how.partition(" ")[0] for one in killed)
    rows = sorted(missed, key=lambda one: (one.file, one.line))
    text = PAGE.format(
        runner=given.runner,
        note=NOTES.get((given.runner, given.seed), AS_DRAWN),
        sample=given.sample,
        seed=given.seed,
        seeds=SEEDS.get(given.seed, f"seed {given.seed} draws"),
        file=given.file,
        command=(
            f"python reports/vllm/kept_mutants.py {given.file} --seed {given.seed} "
            f"--runner {given.runner}"
        ),
        tried=len(judged),
        killed=len(killed),
        matter=matter,
        score=100 * len(killed) / matter,
        elsewhere=sum(others.values()),
        settings=f" ({', '.join(f'{name}: {count}' for name, count in others.most_common())})"
        if others
        else "",
        equivalent=len(survived) - len(missed),
        unedited=len(found) - len(judged),
        lacks=", ".join(f"{what} ({count})" for what, count in sorted(lacks.items())),
        shown=shown,
        run=RUN.format(
            alike=alike,
            killed=len(killed),
            run=matter - alike,
            score=100 * len(killed) / (matter - alike),
        )
        if alike
        else "",
        shown_score=100 * len(killed) / shown,
        by="\n".join(f"| {WORDS[what]} | {count} |" for what, count in by.most_common()),
        missed="\n".join(_row(one, missing.get(one.looks, UNREAD)) for one in rows),
    )
    head, table, rest = text.partition("\n\n| what noticed it")
    *before, figures = head.split("\n\n")
    return "\n\n".join((*before, fill(figures, 100, break_on_hyphens=False))) + table + rest


def _row(one: JudgedMutant, reason: str) -> str:
    cells: Iterable[str] = (f"`{one.file}:{one.line}` {one.scope}", one.before, one.after, reason)
    escaped = (
        cell.replace("|", "&#124;").replace("<", "&#60;").replace("[", "&#91;") for cell in cells
    )
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    main()
