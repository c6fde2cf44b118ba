"""The view for people: one page that asks for itself again."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from datetime import UTC, datetime

from racegate.history import __version__
from racegate.report.dashboard.targets import cell_text
from racegate.report.objects import DashboardView
from racegate.report.search import rate_of
from racegate.report.templating import render

# Between two looks of an open page.
REFRESH_S = 5.0
PAIRS_SHOWN_MAX = 40
WORKERS_SHOWN_MAX = 100


def dashboard_page(view: DashboardView) -> str:
    """HTML that loads nothing but itself."""
    script = render("dashboard.js.j2", refresh_ms=round(REFRESH_S * 1000))
    return render(
        "dashboard.html.j2",
        view=view,
        at=_at,
        ago=lambda moment: _ago(view.read_at - moment),
        workers_shown_max=WORKERS_SHOWN_MAX,
        pairs_shown_max=PAIRS_SHOWN_MAX,
        refresh_s=f"{REFRESH_S:g}",
        rate_of=rate_of,
        cell_text=cell_text,
        version=__version__,
        script=script,
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _at(moment: float) -> str:
    """moment: seconds since 1970"""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(seconds: float) -> str:
    """In the largest unit that there is one of. Clocks of two machines may differ."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{max(0.0, seconds):.0f} s ago"
