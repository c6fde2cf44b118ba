"""The base of all data that racegate reads back: scenarios, witnesses, campaigns, plans."""

from __future__ import annotations

import msgspec


class StrictStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Immutable, slotted, keyword-only; an unknown field is an error on decode."""
