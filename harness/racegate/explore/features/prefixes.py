"""What became of blocks and kept prefixes, read off the order of steps and frames."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from racegate.explore.features.facts import (
    DELIVERED_ALL,
    RunFacts,
    SeenEntry,
    SeenFrame,
    SeenStep,
)
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import Request

# The tokens a kept state is known by: those it is of, and the next one. Of an image with its grid.
Key = tuple[Hashable, ...]


def admissions(facts: RunFacts) -> Iterator[SeenEntry]:
    """Entries with which a request enters, or enters again."""
    return (entry for entry in facts.entries if entry.hit is not None)


def hits_in_a_step(facts: RunFacts) -> int:
    """Most requests that one step admitted with a kept prefix."""
    steps = [entry.step for entry in admissions(facts) if entry.hit]
    return max((steps.count(step) for step in steps), default=0)


def is_resumed_with_hit(facts: RunFacts) -> bool:
    """A request came back from preemption with a kept prefix."""
    seen: set[str] = set()
    for entry in admissions(facts):
        if entry.hit and entry.request in seen:
            return True
        seen.add(entry.request)
    return False


def leaves_one_token(facts: RunFacts) -> bool:
    """A kept prefix holds all of a prompt but the last token."""
    return any(entry.hit and entry.tokens == 1 for entry in admissions(facts))


def loads_under_save(facts: RunFacts) -> bool:
    """A prefix is loaded while a frame in flight saves another."""
    engine = facts.scenario.engine
    if engine.cache_mode is not CacheMode.OFFLOAD:
        return False
    done = {frame.step: frame.iteration for frame in facts.frames}
    saves = [
        e.step for e in facts.entries if e.is_discarded and not e.settled % engine.state_interval
    ]
    loads = [e.step for e in admissions(facts) if e.hit]
    return any(save < load <= done[save] for save in saves for load in loads)


def grows_in_a_row(facts: RunFacts) -> bool:
    """Blocks are taken in consecutive steps."""
    had: dict[str, set[int]] = {}
    last = -2
    for entry in facts.entries:
        if not set(entry.blocks) <= had.get(entry.request, set()):
            if entry.step == last + 1:
                return True
            last = entry.step
        had[entry.request] = set(entry.blocks)
    return False


def is_shared(facts: RunFacts) -> bool:
    """Two live requests hold a common block."""
    tables = ([set(table) for table in step.blocks.values()] for step in facts.steps)
    return any(len(set[int]().union(*held)) < sum(map(len, held)) for held in tables)


def is_recycled_in_flight(facts: RunFacts) -> bool:
    """A request took a block that a frame in flight still names as another request's."""
    steps = list(facts.steps)
    had: dict[str, set[int]] = {}
    for index, step in enumerate(steps):
        in_flight = [e for s in steps[index + 1 - step.in_flight : index] for e in s.entries]
        for entry in step.entries:
            taken = set(entry.blocks[_shared_columns(facts, entry) :])
            if entry.hit is None:
                taken -= had[entry.request]
            had[entry.request] = set(entry.blocks)
            if any(taken & set(e.blocks) for e in in_flight if e.request != entry.request):
                return True
    return False


def _shared_columns(facts: RunFacts, entry: SeenEntry) -> int:
    """Columns of an admitted request's table that it shares: they were taken by somebody else."""
    engine = facts.scenario.engine
    is_sharing = engine.cache_mode.publishes and entry.hit is not None
    return entry.hit // engine.block_size if is_sharing and entry.hit else 0


def is_evicted_and_missed(facts: RunFacts) -> bool:
    """A request begins with a prefix that was kept once, and has to compute it again."""
    return _admits(
        facts,
        lambda kept, hit, tokens: any(
            len(key) - 1 > hit and tokens[: len(key)] == key for key in kept.evicted
        ),
    )


def is_hit_behind_decode(facts: RunFacts) -> bool:
    """A request starts from a state that decode steps left, accepted drafts and all."""
    return _admits(facts, lambda kept, hit, tokens: hit > 0 and tokens[: hit + 1] in kept.decoded)


def is_continuing(facts: RunFacts) -> bool:
    """A prompt goes on where a finished request ended: its prompt and first outputs, at least."""
    entries = list(facts.entries)
    first = {entry.request: entry.step for entry in reversed(entries)}
    last = {entry.request: entry.step for entry in entries}
    prompts = {request.name: request.prompt for request in facts.scenario.requests}
    return any(
        prompts[name][: len(prompts[other]) + 1] == (*prompts[other], *delivered[:1])
        for name in first
        for other, delivered in facts.result.delivered.items()
        if facts.result.finished[other] in DELIVERED_ALL and last[other] < first[name]
    )


class _Kept:
    """Published states by block, as align and all keep them; evicted: keys that were lost;

    decoded: keys whose state a decode step left
    """

    def __init__(self, facts: RunFacts) -> None:
        self._interval = facts.scenario.engine.state_interval
        self._decoding = {(e.step, e.request) for e in facts.decoding}
        self._key_of: dict[int, Key] = {}
        self.tokens = {r.name: _with_grids(r) for r in facts.scenario.requests}
        self._prompts = dict(self.tokens)
        self.evicted: set[Key] = set()
        self.decoded: set[Key] = set()

    def processed(self, frame: SeenFrame) -> None:
        for name, delivered in frame.delivered.items():
            self.tokens[name] = self._prompts[name] + delivered
        for name, table in frame.state_blocks.items():
            for column, block in enumerate(table):
                if block in frame.published and block not in self._key_of:
                    key = self.tokens[name][: (column + 1) * self._interval + 1]
                    self._key_of[block] = key
                    self.evicted.discard(key)
                    if (frame.step, name) in self._decoding:
                        self.decoded.add(key)

    def planned(self, step: SeenStep) -> None:
        for block in self._key_of.keys() - step.published:
            self.evicted.add(self._key_of.pop(block))


def _with_grids(request: Request) -> Key:
    """The prompt, told apart from one of the same tokens in other images."""
    prompt: list[Hashable] = list(request.prompt)
    for image in request.images:
        for place in range(image.start, image.start + image.tokens):
            prompt[place] = (prompt[place], image.grid, place - image.start)
    return tuple(prompt)


def _admits(facts: RunFacts, is_it: Callable[[_Kept, int, Key], bool]) -> bool:
    """Whether some request is admitted so, given what is kept before the step."""
    if not facts.scenario.engine.cache_mode.publishes:
        return False
    kept = _Kept(facts)
    for moment in facts.moments:
        if isinstance(moment, SeenFrame):
            kept.processed(moment)
            continue
        for entry in moment.entries:
            if entry.hit is not None and is_it(kept, entry.hit, kept.tokens[entry.request]):
                return True
        kept.planned(moment)
    return False
