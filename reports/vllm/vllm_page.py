"""The page of all cells: verdicts, conflicts by release, and what the public says of them.

    python reports/vllm/vllm_page.py reports/vllm

writes README.md there from `cells/`, which `racegate history vllm` fills.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from kept_mutants import HERE, scores

from racegate.history.finding import Verdict
from racegate.jobs.versions.cells import CellConflict, CellReport, ScenarioReport, read_cell
from racegate.targets.common.search import Effect
from racegate.targets.common.sensitivity import Pulse

# What races (kind and buffer of the first operation), and the public issue or change that names it.
# "none found": after a search of vllm-project/vllm's issues and pull requests for the buffer and
# the function.
PUBLIC = (
    (r"d2h .*num_accepted_tokens", "vllm#36013, #45100, #51571, #53919"),
    (r"h2d .*_ids_pinned", "vllm#48085, #48399"),
    (r"h2d .*backup_next_token_ids", "vllm#29288 (a reused CPU buffer of the drafter)"),
    (r"h2d .*num_computed_tokens_cpu", "none found (the correction came with vllm#32951)"),
    (r"d2h .*valid_sampled_token_count", "none found"),
    (r"h2d num_accepted_tokens", "none found"),
    (r".*", "none found"),
)
_ORDER = (Effect.WRONG, Effect.DIVERGENT, Effect.UNKNOWN, Effect.BENIGN)
_HARM = (Effect.WRONG, Effect.DIVERGENT)
HEAD = """# vLLM releases under search

Written by `make vllm-report` from `cells/`. Unmodified releases on the
[virtual device](../../docs/interposer.md), hollow fidelity, three MTP drafts, asynchronous
scheduling, each with the torch that it asks for. What each word means is in the
[guide](../../docs/gate_a_runner_change.md). A cell that is not here was not run. In releases that
wait for a step's output in a thread of the executor, whoever asks for the output waits for it here,
which is a schedule that the thread may choose.

Each cell is one scenario of the command

    racegate history vllm --versions RELEASE --runner RUNNER --cache-mode MODE \\
        --scenario SCENARIO --out reports/vllm/cells

with the racegate of the commit that stands in its row.
"""
STAR = """A verdict with a star has no commit: it is of an older racegate, which in most of these
cells missed accesses of torch's CPU operators to pinned memory inside engines. What such a cell
lists is there, but its PROVED and BENIGN do not cover them.
"""
VERDICTS = """## Verdicts

By scenario: the verdict, and the runs under holds that it took. *Observations*: whether a wrong
value that was planted changed each of them; where one is dead, nothing passes. V2 makes a new batch
in each step and moves no rows: a scenario that expects moves is INCONCLUSIVE there. Every reason is
in the last table.
"""
MUTANTS = """## Mutants of 0.33.0 that its gate notices

Of seeds that nobody had looked at (`racegate vllm mutate`). *As drawn*: in one setting, and in the
scenarios that the page of the seed says. *Once read*: each survivor was looked at, and judged again
in settings and scenarios that are for the mistake it stands for, some of which were made for it.
*Without*: likewise, without those that only another configuration of the engine would show.
"""
CANNOT = """## Cells that cannot be run

The first line of the release's own error, or what it says that it does instead; of an INCONCLUSIVE
scenario what it did not exercise. The NotImplementedError without a word, on V2 in 0.12.0, is
that of `AttentionBackend.get_name`: that runner asks each backend for its name, and the one of
recurrent layers has none.
"""
CONFLICTS = """## Conflicts, and the release in which each is gone

One line per operation that races, in any of the scenarios. *wrong*: a landing changes a count, a
list of blocks or a token to one that is not true; *divergent*: it changes something observed;
*benign*: every landing was tried, and no value that is observed changed, so it is benign by the
values observed and no more; *unknown*: not every landing was tried. *Harmless in*: the first
release run in which no landing does harm; *gone in*: the first in which the operation no longer
races. Both of the releases that were searched in a scenario that shows it elsewhere.
"""
EAGER = """## Wrong in the run in which nothing is held

Every copy lands as soon as it is asked for, and the count is another request's all the same. The
row is read as of the last step, after the values have moved with the rows: it is right only if the
copy lands late. That is vllm#53919 (open), and the losing half of vllm#51571. What happens in
0.11.2 is something else: see below.
"""
BY_HAND = """## Judged by hand

All of `preemption_for_blocks`:

- 0.11.2, V1, none: after step 14, in which no request has drafts, A goes on with the count 2 of the
  step before; 1 is true. `_sample` returns before `_update_states_after_model_execute` if nothing
  was drafted, so the counts of the last step with drafts stay. The call still stands there in
  0.14.1; in 0.20.2 it comes behind every sampling. No public issue was found that names it;
  vllm#52942 (open) is about the states of such a step, not the count. No copy is in flight in it:
  it is no race, and every schedule shows it.
- 0.24.0, V1, align: "1 used, 2 true" was a mistake of this tool. The request had come into another
  block of states, to which vLLM copies the accepted state, and says so with the count 1.
- 0.33.0, V1, align is in the table: there the copy of the accepted counts, held until forced,
  lands in the row that B has come back to after its preemption, and 2 stands where 1 does
  otherwise. B has no drafts in that step. The rule for wrong counts covers rows with drafts only,
  and no token changes: DIVERGENT by the count alone.

`drafters_slots` in 0.33.0, V1, none, with a drafter that is a model of its own and is given tokens
alone (`racegate vllm run drafters_slots --release 0.33.0 --drafter model --runs 0`):

- It ends with `IndexError: index 8 is out of bounds for dimension 0 with size 8` in
  `compute_new_slot_mapping`. This is vLLM's mistake, not the script's. `_build_attention_metadata`
  gives EAGLE, DFlash, Gemma4 and hidden-state drafters the block table of their own group of layers
  (`drafter.kv_cache_gid`). `DraftModelProposer` is none of these classes, so that it gets the table
  of the first group, which beside a hybrid target is that of the recurrent states. It has one
  column for the state and one for each draft, 4 here, and with two requests 8 entries. From
  position 320 on (blocks of 80 tokens) a request reads behind its row: the second one the ninth
  entry, which is not there.
- Before that nothing fails, and slots are wrong all the same. In step 5 request A has the blocks 1
  to 4 of recurrent states and block 6 of the drafter's group; the drafter's keys of its tokens 16
  and 17 are for the slots 96 and 97, in block 1, where 496 and 497 would be right. Those of L, at
  504, are for slot 2184, in block 27, which is a block of the states of M. Groups share one memory,
  so that keys of the drafter come to lie in recurrent states; here they are not computed.
- The same choice by class stands in 0.20.2, 0.21.0, 0.22.1, 0.23.0, 0.24.0 and 0.25.1. No public
  issue was found that names it. A model of attention alone has one group.

`rows_left_behind` in 0.33.0, V1, none: in step 4, which is full, B is passed over. It had
accepted two tokens in step 3, so its state stands in the second of its slots. In step 5 it comes
back as a row that was not in the step before, and `_prepare_inputs` gives such rows the count 1:
B goes on from the first slot, from an older state. Nothing is held; every schedule shows it. With
the model computed (`--fidelity full`, the same requests without temperatures) B delivers other
tokens from there on than in plain decoding. No public issue was found that names it.

`full_batch` and `four_tokens_beside_none` in 0.33.0, V2: a request whose prompt is one token
comes beside rows with drafts, and the scheduler pads it with three places for drafts. Its row is
a prefill, and keeps the state behind all four tokens, from which the next step goes on.
vllm#55178 (merged) is about such rows with a state before them; a request that begins has none.
With the model computed `full_batch` delivers 304 as the second token of E where decoding without
speculation (`--drafts 0`) gives 265. Until now plain decoding was padded in the same way, so that
full fidelity did not show it: its requests are run one after the other now.

`one_token_in_used_blocks` in 0.33.0, V1, none: the same prompt of one token, padded in the same
way, is a row that decodes here, with the accepted count 1. So O goes on from what stands in the
first of its blocks, and nobody has cleared that: it is a state of S, which has ended. Nothing is
held. With the model computed (`--fidelity full`) its first token is 266, where decoding alone gives
269: what a request answers hangs on what another one has said. No public issue was found that
names it; vllm#55178 (merged) is about such rows with a state before them.

`paused_under_a_grammar` in 0.33.0, V1 and V2, none: a pause that keeps requests lets all that is in
flight be delivered, and B, which has a grammar, goes on with drafts that the scheduler knows as
placeholders only. `pending_structured_output_tokens` asks for tokens that the host still waits for;
there are none, so that sampling is not put off until the drafts have come, and the grammar stops at
the first placeholder: behind the first token of the row every token is allowed, while the runner
verifies the drafts that it holds. On V2 the drafts are rejected then, on V1 they are not. Nothing
is held; a drawn scenario showed it. vllm#54437 (open) names the same mask that fails open, for
drafts that pipeline parallelism overwrites; no public issue was found that names the pause.

`sampled_row_resumed` and `resumed_in_chunks` in 0.33.0, V1, align, are wrong with
nothing held by states alone. In `sampled_row_resumed` A is done and C comes back in its row before
step 8, and the rows of B and C are swapped. B's count, 3, moves with it, but is read where B's row
was, and there stands 1, which C began with. B comes to a new block in that step: its state is
copied by that count and goes on from the first token of step 7 (80), not from the third (94). No
count is untrue, because behind such a copy it is 1. With the repair of vllm#53919 (as below)
nothing is untrue in either.

`chunk_in_moved_row` in 0.33.0:

- V1, align: wrong with nothing held ("1 used, 2 true" of B in row 0 at step 5), as
  `abort_in_flight` is: that is vllm#53919 again. In a checkout with that repair (wait for
  `num_accepted_tokens_event` at the top of `_update_states`, read the counts without
  `prev_positions`) nothing is untrue in either.
- V2, none: it was DIVERGENT (lengths of step 4: 11, not 13) by a mistake of this tool. To find out
  what torch does with a mask on the host, its own code was run once and the copy of the mask left
  out; the bytes that it was for were zeroed. They were those of `num_rejected`, which was free for
  the host, but not read yet. It is BENIGN. `_copy_request_inputs` does read temperatures and seeds
  from a buffer that the host writes again two steps later, and the step's event is recorded before
  the drafter: no edge orders them. By then a row has another request only if its own is done,
  aborted or preempted, and its drafts are thrown away. With that mended all 19 scenarios
  that V2 runs in mode none are BENIGN or PROVED with all landings (`racegate vllm gate --release
  0.33.0 --runner v2`, exit 0, 2026-11-26).

## With the model computed

The cells are hollow: the model is scripted, so a wrong count is not followed to what it does. In
0.22.1 the finding was confirmed in the fidelity *full*, in which the target computes what it says:
a layer of gated delta rule with its convolution and one of attention, in float16, with weights
drawn from a seed. The plain decoding of the same engine is run first, in steps without drafts; the
drafter says what that gave, or something else where a draft is to be wrong.

    racegate vllm run scenarios/vllm/first_decode_in_moved_row.toml --release 0.22.1 --fidelity full

- With nothing held all three requests deliver what plain decoding does.
- The copy of step 4, landing between the row moves of step 5, gives B the count of the request
  whose row it gets (4 used, 1 true), as in the hollow cell. So B's first decode starts from a slot
  into which no state of B was written. It delivers 93, 76, 115, 80, 72, 113, 104, 117, 67, 115
  where plain decoding has 93, 82, 109, 86, 75, 76, 122, 83, 127, 99: wrong from the first token of
  that step to the last. The other two requests deliver what they should.
- What else races is BENIGN, tokens included.

DIVERGENT, 19 runs under holds, 176 CPU seconds and 295 s with the engine's start and the planted
values (torch 2.11.0, 2026-11-23, load 9 to 12 on two cores). Triton's interpreter was helped over
two things for it that compiled kernels may do: call the language by a name of their own
(`exp = tl.exp`), and convert what a loop counts (`i_t.to(tl.int64)`).

In 0.33.0 the recorded run of the same scenario was made so on V1 and V2, none and align (`--release
0.33.0 --runner R --cache-mode M --fidelity full --runs 0`, torch 2.14.1, 2026-11-26): it starts, no
value is untrue, and all requests deliver what plain decoding does. It had been DIVERGENT by hidden
states that were compared with those of the scripted model. Landings were not run there, and states
and slots are not digested by layer.

The kernel of the convolution also showed a mistake of this tool: where a mask was made of integers,
as `&` makes them in the interpreter, only the bytes of one or two elements counted as written. With
that mended all cells were run again, at 5d969e7 (and at 7c0e26a what 0.27.1 had refused a stand-in
for): the 98 scenarios that stood here before have the conflicts, effects, landings and runs that
they had. Twice in that run, both in 0.25.1 on V2, a process of the runs under holds ended by a
segmentation fault, and the scenario was a CONFLICT because its landings were not tried; run again,
and again, it was not. Where that was is not known: it left no message, which it would now.
"""
SPEED = """
Runs under holds end where they have become the run in which nothing is held. Of nine scenarios
(0.24.0: seeds 0 to 3, `first_decode_in_moved_row` and `prefix_hit` in align,
`fresh_blocks_in_consecutive_steps` and seed 1 on V2; 0.22.1: `first_decode_in_moved_row`) runs to
the end gave the same conflicts, effects, landings and values. `racegate vllm search --seeds 4`, 118
runs:

| racegate | release | runs a minute and core | started in | load, on two cores |
|---|---|---|---|---|
| 3cc925a | 0.24.0 | 139 | 19 s | 1 |
| with it | 0.22.1 | 162 | 39 s | 11 |
| c19ce92 | 0.24.0 | 149, 150, 167 | 19 s | 1 |
| 5218a39, other scenarios by the same seeds | 0.24.0 | 154, 158 | not noted | 1 |

Since then runs learn from each other
([why](../../docs/decisions/22-releases.md#runs-learn-what-no-schedule-changes)). The table has CPU
seconds before and after, without the plants' runs, measured at the same time on two cores with a
load of 8 to 14:

| release, seeds | runs | before | after | before / after |
|---|---|---|---|---|
| 0.24.0, 0 to 3 | 128 | 58.1 | 48.5 | 1.20 |
| 0.24.0, 0 and 1, zeros in one page as well | 49 | 21.3 | 18.2 | 1.17 |
| 0.22.1, 9, likewise: DIVERGENT in both | 31 | 14.8 | 12.3 | 1.21 |

Of the second row, per run: recorded 2.09 s before and after, two thirds of it Triton's interpreter;
the guide 1.01 and 0.79 s; runs that join it 0.28 and 0.23 s; runs to the end 0.61 and 0.48 s. Every
run was the same in both.

Of one operation the landings are now forked from the one run that holds it, where they land. Before
and after that, likewise, at a load of 8 to 14:

| release, seeds | runs | before | after | before / after |
|---|---|---|---|---|
| 0.24.0, 0 to 3 | 128 | 55.6 | 45.7 | 1.22 |
| 0.24.0, 2: 37 of its runs are such landings | 58 | 19.0 | 13.1 | 1.45 |
| 0.22.1, 9: DIVERGENT in both | 31 | 15.7 | 14.3 | 1.10 |

A landing takes 0.10 instead of 0.28 CPU seconds, the run that it is forked from 0.35 instead of
0.31 (the first row: 64 landings, 56 runs that may have some). Holds, gaps, findings, values and
endings were the same in all 159 runs, and so was where they joined; the count of a run's events was
not, because it has those of forks before it in it. At that load the first and the last row were
168 and 130 runs a minute and core, and 138 and 119 before. At a0abade
`racegate vllm search --release 0.24.0 --seeds 4` makes 128 runs at **219 and 304 a minute and
core** (35 and 25 CPU seconds; the second beside tests, when the processor was faster), and vLLM
starts in 19 and 13 s; at 0c50c1b, on a quiet machine, 271 (28 CPU seconds). A recorded run still
interprets kernels that it could know from other contents.

## By seeds alone

Requests that are drawn independently hardly ever make a row move in the step in which it hurts:
seeds 0 to 5 found nothing in 0.22.1. Drawn to come in when the row of the first request becomes
free, or a step before, they do:

    racegate vllm search --release 0.22.1 --out DIR --scenarios 12

finds the copy of the accepted counts wrong with seed 9, the tenth: 307 runs under holds until then.
All 12 seeds are 371 runs in 143 CPU seconds (156 a minute and core, load 6 to 11 on two cores); the
other 11 are BENIGN.
"""
GPU = """## On a real GPU

Cells again on real streams (`reports/vllm/on_gpu.py`,
[gpu/cells.json](gpu/cells.json)): the same releases and scripted model, with vLLM's Triton
kernels compiled, the landing held by a latch.
Each was right when nothing was held.
"""


def write_page(out: Path) -> None:
    """README.md, from cells/*.json."""
    reports = [read_cell(path) for path in (out / "cells").glob("*.json")]
    known = sorted((r for r in reports if r is not None), key=_key)
    has_star = any(not one.commit for report in known for one in report.scenarios.values())
    parts = [
        HEAD,
        *([STAR] if has_star else []),
        VERDICTS,
        *_verdicts(known),
        *_speed(known),
        SPEED,
        CONFLICTS,
        *_conflicts(known),
    ]
    if eager := list(_eager(known)):
        parts += [EAGER, *eager, BY_HAND]
    if (on_gpu := out / "gpu" / "cells.json").exists():
        parts += [GPU, *_on_gpu(msgspec.json.decode(on_gpu.read_bytes()))]
    parts += [
        MUTANTS,
        *_table(("runner", "seeds", "as drawn", "once read", "without"), scores(HERE)),
    ]
    parts += [CANNOT, *_cannot(known)]
    (out / "README.md").write_text("\n".join(parts) + "\n")


def version(release: str) -> tuple[int, ...]:
    """0.9.2 before 0.22.1."""
    return tuple(int(part) for part in re.findall(r"\d+", release))


def _key(report: CellReport) -> tuple[str, str, tuple[int, ...]]:
    return report.runner, report.mode, version(report.release)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _on_gpu(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['gpu'].replace(',', ', driver', 1)}.\n"
    rows = []
    for cell in found["cells"]:
        assert not cell["nothing held"], f"wrong without a hold: {cell['release']}"
        holds = "; ".join(f"`{operation}` until `{until}`" for operation, until in cell["hold"])
        does = "; ".join(cell["held"]) or "nothing changes"
        torch = cell["torch"].partition("+")[0]
        rows.append((cell["release"], cell["runner"].upper(), cell["mode"], torch, holds,
                     cell["verdict"], does))  # fmt: skip
    heads = ("release", "runner", "mode", "torch", "held", "verdict", "what it does")
    yield from _table(heads, rows)


def _verdicts(reports: list[CellReport]) -> Iterator[str]:
    ran = [report for report in reports if report.scenarios]
    names = sorted({name for report in ran for name in report.scenarios})
    rows = [
        (
            report.release,
            report.runner.upper(),
            report.mode,
            report.torch.partition("+")[0],
            *(_verdict(report.scenarios.get(name)) for name in names),
            _observations(report),
            ", ".join(sorted({one.commit for one in report.scenarios.values() if one.commit})),
        )
        for report in ran
    ]
    names = [f"`{name}`" for name in names]
    heads = ("release", "runner", "mode", "torch", *names, "observations", "commit")
    yield from _table(heads, rows)


def _speed(reports: list[CellReport]) -> Iterator[str]:
    """What runs cost where it is known which racegate made them."""
    known = [s for report in reports for s in report.scenarios.values() if s.commit and s.cpu_s]
    if known:
        runs = sum(one.runs + 1 for one in known)
        cpu_s = sum(one.cpu_s for one in known)
        yield (
            f"Cells with a commit: {runs} runs, {len(known)} of them recorded, in {cpu_s:.0f} CPU "
            f"seconds of their processes:\n{60 * runs / cpu_s:.0f} a minute and core, on two cores "
            "that other work kept busy.\n"
        )


def _verdict(found: ScenarioReport | None) -> str:
    if found is None:
        return ""
    word = found.verdict if found.commit else f"{found.verdict}\\*"
    if found.message:
        return f"{word}: {found.message[:80]}"
    if found.wrong:
        return f"{word}, nothing held"
    return f"{word}, {found.runs}" if found.runs else word


def _observations(report: CellReport) -> str:
    words = [
        f"{pulse}: {', '.join(o for o, p in report.sensitivity.items() if p is pulse)}"
        for pulse in (Pulse.DEAD, Pulse.ABSENT)
        if pulse in report.sensitivity.values()
    ]
    return "; ".join(words) or ("all alive" if report.sensitivity else "not tried")


def _conflicts(reports: list[CellReport]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[CellReport]] = defaultdict(list)
    for report in reports:
        if report.scenarios:
            groups[report.runner, report.mode].append(report)
    for (runner, mode), cells in groups.items():
        yield f"### {runner.upper()}, {mode}\n"
        places = dict.fromkeys(place for cell in cells for place in _effects(cell))
        rows = [(f"`{place}`", *_line(place, cells), public(place)) for place in places]
        yield from _table(
            ("first operation", "effect", "a landing", "harmless in", "gone in", "public"), rows
        )


def _effects(cell: CellReport) -> dict[str, CellConflict]:
    """By place the conflict with the worst effect."""
    found: dict[str, CellConflict] = {}
    for scenario in cell.scenarios.values():
        for one in scenario.conflicts:
            known = found.get(one.first)
            if known is None or _ORDER.index(one.effect) < _ORDER.index(known.effect):
                found[one.first] = one
    return found


def _line(place: str, cells: list[CellReport]) -> tuple[str, str, str, str]:
    """(effect by release, what a landing does, first release without harm, and without it)."""
    by_effect: dict[Effect, list[str]] = defaultdict(list)
    does = ""
    for cell in cells:
        one = _effects(cell).get(place)
        if one is not None:
            by_effect[one.effect].append(cell.release)
            does = does or (one.does[0][:90] if one.does else "")
    effects = "; ".join(f"{e}: {', '.join(by_effect[e])}" for e in _ORDER if by_effect[e])
    return effects, does, _without(place, cells, _HARM), _without(place, cells, _ORDER)


def _without(place: str, cells: list[CellReport], effects: tuple[Effect, ...]) -> str:
    """The first release behind all with such an effect, of those that were searched in a scenario
    that showed it.
    """
    shown = {name for cell in cells for name in cell.scenarios if _has(cell, name, place, effects)}
    judged = [(c, [n for n in shown if n in c.scenarios and _is_judged(c, n)]) for c in cells]
    searched = [(cell, names) for cell, names in judged if names]
    last = -1
    for index, (cell, names) in enumerate(searched):
        if any(_has(cell, name, place, effects) for name in names):
            last = index
    return searched[last + 1][0].release if 0 <= last < len(searched) - 1 else ""


def _is_judged(cell: CellReport, name: str) -> bool:
    found = cell.scenarios[name]
    return not found.wrong and not found.message


def _has(cell: CellReport, name: str, place: str, effects: tuple[Effect, ...]) -> bool:
    return any(c.first == place and c.effect in effects for c in cell.scenarios[name].conflicts)


def public(place: str) -> str:
    """The issue or change that names what races there."""
    return next(text for pattern, text in PUBLIC if re.match(pattern, place))


def _eager(reports: list[CellReport]) -> Iterator[str]:
    rows = [
        (report.release, report.runner.upper(), report.mode, f"`{name}`", found.wrong[0])
        for report in reports
        for name, found in report.scenarios.items()
        if found.wrong
    ]
    if rows:
        yield from _table(("release", "runner", "mode", "scenario", "what"), rows)


def _cannot(reports: list[CellReport]) -> Iterator[str]:
    rows = [
        (report.release, report.runner.upper(), report.mode, *why)
        for report in reports
        for why in _reasons(report)
    ]
    yield from _table(("release", "runner", "mode", "scenario", "why"), rows)


def _reasons(report: CellReport) -> Iterator[tuple[str, str]]:
    if report.cannot:
        yield "all", report.cannot[:160]
    for name, found in report.scenarios.items():
        if found.verdict == Verdict.INCONCLUSIVE:
            yield f"`{name}`", found.message or "; ".join(found.unmet)


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
