"""The view for people: one page that asks for itself again."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from datetime import UTC, datetime

import racegate
from racegate.report.objects import DashboardView
from racegate.report.search import rate_of
from racegate.report.templating import render

# Between two looks of an open page.
REFRESH_S = 5.0
PAIRS_SHOWN_MAX = 40


def dashboard_page(view: DashboardView) -> str:
    """HTML that loads nothing but itself."""
    script = render("dashboard.js.j2", refresh_ms=round(REFRESH_S * 1000))
    return render(
        "dashboard.html.j2",
        view=view,
        read_at=datetime.fromtimestamp(view.read_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        pairs_shown_max=PAIRS_SHOWN_MAX,
        refresh_s=f"{REFRESH_S:g}",
        rate_of=rate_of,
        version=racegate.__version__,
        script=script,
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
