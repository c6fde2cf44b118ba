"""The runner's mirror of a request."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.engine.state.plan import PlanEntry


@dataclass(slots=True)
class RequestState:
    """What the runner knows of a request in its batch, or of one that skips a step.

    tokens: known tokens when it last entered the batch (generated ones since then are only on the
        device)
    computed: tokens computed by the steps issued so far, the last one's drafts counted as accepted
        until the
        deferred correction
    accepted_last: accepted count of its last step, as far as the host has learned it
    column: first column of its running state window, -1 before any state exists; in cache mode all
        the anchor of its last step
    """

    name: str
    incarnation: int
    prefill_len: int
    tokens: tuple[int, ...]
    computed: int
    accepted_last: int = 1
    column: int = -1
    blocks: int = 0
    state_blocks: int = 0

    def token_at(self, index: int) -> int:
        """The known token at a position, -1 past the known ones."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else -1


def enter(entry: PlanEntry, earlier: RequestState | None) -> RequestState:
    """The mirror of a request that the runner has not met in this incarnation. earlier: of its last
    one, of which nothing is left.
    """
    assert entry.known_tokens is not None, f"{entry.request} enters without its tokens"
    return RequestState(
        name=entry.request,
        incarnation=entry.incarnation,
        prefill_len=entry.prefill_len,
        tokens=entry.known_tokens,
        computed=entry.computed,
    )
