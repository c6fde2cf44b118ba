"""What run, replay, gate and explain show of a finding: its cause, a picture in text, and the files
that were asked for.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import typer

from racegate.cli.options import fail, folder_to_fill, place_to_write, say, write_text
from racegate.history.witness import SealedWitness, save
from racegate.report.finding.drawing import Examined, page_of
from racegate.report.text import ShownFinding
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.model import Timeline

SvgOption = Annotated[
    Path | None,
    typer.Option("--svg", metavar="PATH", help="Draw the finding.", callback=place_to_write),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="PATH",
        help="Write the report of the finding as one page with pictures.",
        callback=place_to_write,
    ),
]
TraceOutOption = Annotated[
    Path | None,
    typer.Option(
        "--trace-out",
        metavar="PATH",
        help="Write the run as a trace that Perfetto opens.",
        callback=place_to_write,
    ),
]


OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write a witness and a page of each cause here.",
        callback=folder_to_fill,
    ),
]
NAME_LENGTH_MAX = 100


def write_cause(
    folder: Path, signature: str, page: str, witness: SealedWitness | None
) -> tuple[str, ...]:
    """The page of a cause and, if there is one, what replays it, named after its signature. Returns
    what is printed of them.
    """
    name = file_name(signature)
    html, file = folder / f"{name}.html", folder / f"{name}.witness.json"
    write_text(html, page)
    if witness is None:
        return (f"page: {html}",)
    save(witness, file)
    return f"racegate replay {quote(str(file))}", f"page: {html}"


def file_name(signature: str) -> str:
    """A signature as the name of a file; of a long one its beginning and a hash of it all."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", signature).strip("-.")
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{name[:NAME_LENGTH_MAX]}-{hashlib.sha256(signature.encode()).hexdigest()[:8]}"


class PictureFiles(NamedTuple):
    """Files to be written."""

    svg: Path | None = None
    html: Path | None = None
    trace_out: Path | None = None

    def refuse_all(self, why: str) -> None:
        """Ends the command if any was asked for."""
        for path in filter(None, self):
            fail(f"{why}, so {path} is not written")

    def leave_out(self, why: str) -> None:
        """Says of each that it is not written. What the command ends with is the run's."""
        for path in filter(None, self):
            say(f"{why}, so {path} is not written")


def shown_of(seen: Examined | None) -> ShownFinding | None:
    """What a terminal shows, if there is anything."""
    return None if seen is None else seen.shown


def draw(wanted: PictureFiles, seen: Examined | None) -> None:
    """The files that were asked for."""
    if seen is None:
        wanted.leave_out("nothing was found")
        return
    timeline = seen.timeline
    if timeline is None:
        wanted._replace(html=None).leave_out("the finding has no two operations to draw")
    else:
        draw_timeline(wanted, timeline)
    if wanted.html is not None:
        write_text(wanted.html, page_of(seen))


def draw_timeline(wanted: PictureFiles, timeline: Timeline) -> None:
    """The pictures alone. jinja2 is imported for these and nothing else."""
    if wanted.trace_out is not None:
        write_text(wanted.trace_out, chrome_trace(timeline).decode())
    if wanted.svg is not None:
        from racegate.report.timeline.svg import svg_timeline

        write_text(wanted.svg, svg_timeline(timeline))
