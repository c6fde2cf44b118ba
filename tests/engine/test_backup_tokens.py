"""Backup tokens on the engine: every drafter that reads them, in every situation in which a chunk
ends beside speculating rows, against the reference; and the historical inflation of their index.

The first place that may differ is `prepared.backup_token` of a row with a chunk. Verification is
lossless, so no delivered token ever does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.history.finding import FindingKind, Verdict
from racegate.history.observe import Boundary, Observation
from racegate.history.schedule import LATE
from racegate.scenario.settings import DrafterKind, EngineSpec, ModelSpec
from racegate.scenario.spec import DraftLimit, Event, OwnScenario, Preempt, Request
from racegate.scenario.validation import validate

# How far behind the chunk each fault looks, by the most drafts of a row in the step.
INFLATED: dict[str, Callable[[int], int]] = {
    "backup-token-inflated-index:by-one": lambda drafts: min(1, drafts),
    "backup-token-inflated-index": lambda drafts: drafts,
    "backup-token-inflated-index:by-two-steps": lambda drafts: 2 * drafts,
}
DRAFTERS = {
    DrafterKind.MTP: 3,
    DrafterKind.EXTRACT_HIDDEN_STATES: 1,
    DrafterKind.SCRIPTED: 3,
}
VOCAB_SIZE = 97
# Of the model: one with which no real drafter guesses right where all drafts are to be rejected.
MODEL_SEED = 2


def request(name: str, length: int, **options: Any) -> Request:
    """A request whose prompt has no two equal tokens within reach of an inflated index."""
    prompt = tuple((7 * i + 11 * ord(name)) % VOCAB_SIZE for i in range(length))
    return Request(name=name, prompt=prompt, **{"arrive": 0, "max_tokens": 14} | options)


def long(length: int, **options: Any) -> Request:
    """The request whose prompt takes several chunks."""
    return request("L", length, **{"arrive": 2, "max_tokens": 4} | options)


# Each: (engine options, requests, events). A and B speculate while L is in chunks.
Script = tuple[dict[str, int], tuple[Request, ...], tuple[Event, ...]]


def beside(
    chunked: Request, *events: Event, accepts: tuple[int, ...] = (2, 4, 1), max_tokens: int = 14
) -> Script:
    pair = (
        request("A", 5, accepts=accepts, max_tokens=max_tokens),
        request("B", 6, accepts=accepts[::-1], max_tokens=max_tokens),
    )
    return {"prefill_chunk_max": 6}, (*pair, chunked), events


def mixed() -> Script:
    """Rows with all drafts, with none, a short chunk, a long one and a fresh prompt."""
    options, requests, _ = beside(long(21))
    more = (request("C", 6, max_tokens=16), request("M", 13, arrive=3, max_tokens=3))
    limits = tuple(DraftLimit(step=step, request="C", drafts=0) for step in (3, 4, 5))
    return options, (*requests, *more), limits


SITUATIONS: dict[str, Callable[[], Script]] = {
    "partial prefill": lambda: beside(long(21)),
    "all drafts rejected": lambda: beside(long(21), accepts=(1,)),
    "mixed batch": mixed,
    "first step after resume": lambda: beside(
        long(13, max_tokens=8), Preempt(step=6, request="L"), max_tokens=24
    ),
    "block edge": lambda: (
        {"prefill_chunk_max": 8, "block_size": 4},
        *beside(long(25))[1:],
    ),
    # The last discarded chunk ends one token before the prompt does, and the prompt four before the
    # longest sequence there may be: whatever looks further finds no token.
    "maximum length": lambda: (
        {"prefill_chunk_max": 6, "model_len_max": 29},
        *beside(long(25, max_tokens=4))[1:],
    ),
}


def build(script: Script, drafter: DrafterKind) -> OwnScenario:
    options, requests, events = script
    engine = EngineSpec(drafter=drafter, draft_len_max=DRAFTERS[drafter], **options)
    return validate(
        OwnScenario(
            name="backup-tokens",
            title="backup tokens",
            model=ModelSpec(vocab_size=VOCAB_SIZE, seed=MODEL_SEED),
            engine=engine,
            requests=requests,
            events=events,
        )
    )


@cache
def subject(situation: str, drafter: DrafterKind) -> Checker:
    return Checker(build(SITUATIONS[situation](), drafter))


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A discarded row. end: the position behind its chunk; drafts: the most of any row beside it;
    accepted: of the rows with drafts beside it; is_resumed: its first chunk after a preemption
    """

    step: int
    request: str
    end: int
    backup: int
    drafts: int
    zero_draft_rows: int
    accepted: tuple[int, ...]
    is_resumed: bool


def chunks(reference: tuple[Observation, ...]) -> list[Chunk]:
    """The discarded rows of a run, from the reference's observations."""
    return list(_chunks(reference))


def _chunks(reference: tuple[Observation, ...]) -> Iterator[Chunk]:
    seen: dict[Boundary, Observation] = {}
    resuming: set[str] = set()
    for observation in reference:
        seen[observation.boundary] = observation
        if observation.boundary is Boundary.SCHEDULED:
            resuming |= set(observation.values["preempted"])
        if observation.boundary is not Boundary.SAMPLED:
            continue
        prepared, inputs = seen[Boundary.PREPARED].values, seen[Boundary.INPUTS].values
        drafts = {name: d for name, _, d in seen[Boundary.SCHEDULED].values["plan"]}
        rows = prepared["rows"]
        speculating = [row for row, name in enumerate(rows) if drafts[name]]
        decoding = [row for row in range(len(rows)) if not prepared["discarded"][row]]
        for row, name in enumerate(rows):
            if prepared["discarded"][row]:
                yield Chunk(
                    step=observation.step,
                    request=name,
                    end=int(inputs["seq_lens"][row]),
                    backup=int(prepared["backup_token"][row]),
                    drafts=max(drafts.values()),
                    zero_draft_rows=len(decoding) - len(speculating),
                    accepted=tuple(observation.values["accepted"][speculating].tolist()),
                    is_resumed=name in resuming,
                )
        resuming -= set(rows)


def speculative(situation: str, drafter: DrafterKind) -> list[Chunk]:
    """The chunks beside rows that speculate: where an inflated index is another one."""
    found = chunks(subject(situation, drafter).reference.observations)
    return [chunk for chunk in found if chunk.drafts]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("situation", SITUATIONS)
class TestSituations:
    def test_it_is_the_situation_it_says(self, situation: str, drafter: DrafterKind) -> None:
        found = speculative(situation, drafter)
        k = DRAFTERS[drafter]
        assert found
        assert max(chunk.drafts for chunk in found) == k
        if situation == "all drafts rejected":
            assert all(set(chunk.accepted) == {1} for chunk in found)
        elif situation == "mixed batch":
            assert any(chunk.zero_draft_rows for chunk in found)
            assert len({chunk.request for chunk in found}) == 2
        elif situation == "first step after resume":
            assert any(chunk.is_resumed for chunk in found)
        elif situation == "block edge":
            assert all(chunk.end % 4 == 0 for chunk in found)
        elif situation == "maximum length":
            (asked,) = (r for r in subject(situation, drafter).scenario.requests if r.name == "L")
            assert max(chunk.end for chunk in found) == len(asked.prompt) - 1
            limit = subject(situation, drafter).scenario.engine.model_len_max
            assert len(asked.prompt) + asked.max_tokens == limit

    def test_the_reference_takes_the_token_behind_the_chunk(
        self, situation: str, drafter: DrafterKind
    ) -> None:
        checker = subject(situation, drafter)
        prompts = {asked.name: asked.prompt for asked in checker.scenario.requests}
        for chunk in chunks(checker.reference.observations):
            if chunk.end < len(prompts[chunk.request]):
                assert chunk.backup == prompts[chunk.request][chunk.end]

    def test_the_engine_equals_the_reference_early_and_late(
        self, situation: str, drafter: DrafterKind
    ) -> None:
        checker = subject(situation, drafter)
        assert checker.run(is_audited=True).verdict is Verdict.PROVED
        assert checker.run(schedule=LATE).findings == ()

    @pytest.mark.parametrize("fault", INFLATED)
    def test_an_inflated_index_is_found_at_the_first_chunk_it_reaches(
        self, situation: str, drafter: DrafterKind, fault: str
    ) -> None:
        checker = subject(situation, drafter)
        result = checker.run(fault=find_fault(fault))
        assert result.verdict is Verdict.DIVERGENT
        assert {finding.kind for finding in result.findings} == {FindingKind.DIVERGENCE}
        (finding,) = result.findings
        first = speculative(situation, drafter)[0]
        assert (finding.field, finding.step) == ("prepared.backup_token", first.step)
        assert finding.request == first.request
        prompts = {asked.name: asked.prompt for asked in checker.scenario.requests}
        index = first.end + INFLATED[fault](first.drafts)
        beyond = index >= len(prompts[first.request])
        assert finding.expected == prompts[first.request][first.end]
        assert finding.actual == (-1 if beyond else prompts[first.request][index])


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("fault", INFLATED)
class TestWhereNothingCanDiffer:
    def test_no_chunk_ends_inside_a_prompt(self, drafter: DrafterKind, fault: str) -> None:
        _, requests, _ = beside(long(21))
        checker = Checker(build(({"prefill_chunk_max": 64}, requests, ()), drafter))
        assert chunks(checker.reference.observations) == []
        assert checker.run(fault=find_fault(fault)).findings == ()

    def test_no_row_beside_the_chunk_speculates(self, drafter: DrafterKind, fault: str) -> None:
        alone = (long(21, arrive=0),)
        checker = Checker(build(({"prefill_chunk_max": 6}, alone, ()), drafter))
        found = chunks(checker.reference.observations)
        assert len(found) == 3
        assert {chunk.drafts for chunk in found} == {0}
        assert checker.run(fault=find_fault(fault)).findings == ()


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_at_the_end_of_the_prompt_an_inflated_index_finds_no_token(drafter: DrafterKind) -> None:
    """Historically -1, which indexed the drafter's embedding from the back."""
    checker = subject("maximum length", drafter)
    last = speculative("maximum length", drafter)[-1]
    for name, inflation in INFLATED.items():
        run = checker.execute(fault=find_fault(name))
        assert inflation(last.drafts) > 0
        values = next(
            o.values
            for o in run.observations
            if o.boundary is Boundary.PREPARED and "L" in o.values["rows"] and o.step == last.step
        )
        assert values["backup_token"][values["rows"].index("L")] == -1
