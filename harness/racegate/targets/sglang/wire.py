"""What the launcher and the engine's process agree on, beside the tasks of
`racegate.targets.common.wire`.
"""

from __future__ import annotations

from enum import StrEnum

REQUESTS_MAX = 8
TOKENS_MAX = 448  # of one request
VOCAB = 512
DRAFT_LEN = 3  # of a model that drafts


class ModelKind(StrEnum):
    """HYBRID: a gated-delta layer and one of attention, with the Mamba radix cache.
    DENSE: attention only, with the plain radix cache.
    MTP: as HYBRID, with a multi-token-prediction layer that drafts.
    """

    HYBRID = "hybrid"
    DENSE = "dense"
    MTP = "mtp"


class Repair(StrEnum):
    """A repair of a race that can be switched off in a release that has it.

    DONATED_SLOT: a cached state is the slot that the forward stream writes, no copy of it (#24954)
    FORWARD_COPY: a cached state is copied to its new owner on the forward stream (#24954)
    WAR_BARRIER: the schedule stream waits for the forward stream in each iteration (#26380)
    """

    DONATED_SLOT = "donated-slot"
    FORWARD_COPY = "forward-copy"
    WAR_BARRIER = "war-barrier"
