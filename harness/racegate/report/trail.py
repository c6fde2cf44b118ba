"""Where a page of a site leads besides itself."""

from __future__ import annotations

import msgspec


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Links of a page. home: the page that lists it; before, after: its neighbours, or nothing"""

    home: str
    home_title: str
    before: str = ""
    after: str = ""
