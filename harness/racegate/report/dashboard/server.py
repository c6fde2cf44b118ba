"""Answers requests: the page, a page with a picture for each finding, witnesses, JSON, metrics."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from racegate.history.witness import Witness, file_of, sealed
from racegate.jobs.fleet.matrix import TargetMatrix
from racegate.jobs.stores.records import CampaignState, KeptFinding
from racegate.jobs.stores.store import Store
from racegate.jobs.stores.witnesses import own_witness
from racegate.report.dashboard.metrics import metrics_of
from racegate.report.dashboard.page import dashboard_page
from racegate.report.dashboard.view import name_of, view_of
from racegate.report.objects import DashboardView, FindingView
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import message, printable_json

# The store is asked no oftener, however many look.
ASKED_EVERY_S = 2.0
PICTURES_MAX = 64
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
)
METRICS = "text/plain; version=0.0.4; charset=utf-8"

# What targets of fleets have shown, where the store has any. Raises BadInputError.
ReadTargets = Callable[[], TargetMatrix | None]
# Draws a finding from its witness and the name of its file: HTML, or None if nothing is found.
Draw = Callable[[Witness, str], str | None]


class StoreWatch:
    """A store as it was a moment ago, for any number of readers."""

    def __init__(self, store: Store, read_targets: ReadTargets = lambda: None) -> None:
        self._store = store
        self._read_targets = read_targets
        self._targets: TargetMatrix | None = None
        self._lock = threading.Lock()
        self._kept: dict[str, KeptFinding] = {}
        self._states: Sequence[CampaignState] = ()
        self._view: DashboardView | None = None
        self._next_look = 0.0

    def view(self) -> DashboardView:
        """What is known now; of a store that does not answer, what was known and why."""
        with self._lock:
            if self._view is None or time.monotonic() >= self._next_look:
                self._view = self._looked()
                self._next_look = time.monotonic() + ASKED_EVERY_S
            return self._view

    def finding(self, name: str) -> KeptFinding | None:
        """A finding by its name in addresses."""
        self.view()
        return self._kept.get(name)

    def _looked(self) -> DashboardView:
        problem = None
        try:
            found = self._store.findings()
            self._states = self._store.states()
            self._targets = self._read_targets()
            self._kept = {name_of(kept.signature): kept for kept in found}
        except (BadInputError, OSError) as error:
            problem = message(str(error))
        read_at = self._view.read_at if problem and self._view else time.time()
        kept = self._kept.values()
        name = self._store.name
        return view_of(
            name, self._states, kept, read_at=read_at, problem=problem, targets=self._targets
        )


class Drawings:
    """Pages of findings: each witness is run when its page is first asked for, one at a time."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._drawn: OrderedDict[tuple[str, str], str | None] = OrderedDict()

    def of(self, kept: KeptFinding, file: str) -> str | None:
        """HTML; None if a run of the witness finds nothing."""
        key = (file, sealed(kept.witness).checksum)
        with self._lock:
            if key not in self._drawn:
                self._drawn[key] = self._draw(own_witness(kept.witness), file)
                while len(self._drawn) > PICTURES_MAX:
                    self._drawn.popitem(last=False)
            return self._drawn[key]


def dashboard(
    store: Store,
    draw: Draw,
    *,
    hosts: Sequence[str],
    read_targets: ReadTargets = lambda: None,
) -> Starlette:
    """The application. hosts: names that requests may ask for, `*` for any: a page elsewhere cannot
    have a browser read this one by giving its own name this address
    """
    watched, pictures = StoreWatch(store, read_targets), Drawings(draw)

    def page(_: Request) -> Response:
        return HTMLResponse(dashboard_page(watched.view()))

    def finding(request: Request) -> Response:
        kept, shown = _asked(watched, request)
        try:
            html = pictures.of(kept, shown.file)
        except BadInputError as error:
            raise HTTPException(
                409, message(f"{shown.file} cannot be run here: {error}")
            ) from error
        if html is None:
            raise HTTPException(404, f"a run of {shown.file} finds nothing: there is no picture")
        return HTMLResponse(html)

    def witness(request: Request) -> Response:
        kept, shown = _asked(watched, request)
        content = file_of(msgspec.json.encode(sealed(kept.witness)))
        disposition = {"content-disposition": f'attachment; filename="{shown.file}"'}
        return Response(content, media_type="application/json", headers=disposition)

    def as_json(_: Request) -> Response:
        text = printable_json(msgspec.json.encode(watched.view()).decode())
        return Response(text, media_type="application/json")

    def metrics(_: Request) -> Response:
        return Response(metrics_of(watched.view()), headers={"content-type": METRICS})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/findings/{name}", finding),
            Route("/witnesses/{name}.witness.json", witness),
            Route("/campaign.json", as_json),
            Route("/metrics", metrics),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
        exception_handlers={HTTPException: _refused},
    )


def _asked(watched: StoreWatch, request: Request) -> tuple[KeptFinding, FindingView]:
    """The finding of an address. Raises HTTPException."""
    name = request.path_params["name"]
    kept = watched.finding(name)
    shown = [one for one in watched.view().findings if one.name == name]
    if kept is None or not shown:
        raise HTTPException(404, "no such finding")
    return kept, shown[0]


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code)


class _Headers:
    """What a browser is told about every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(answer: Message) -> None:
            if answer["type"] == "http.response.start":
                answer["headers"] = [*answer["headers"], *HEADERS]
            await send(answer)

        await self._app(scope, receive, with_headers)
