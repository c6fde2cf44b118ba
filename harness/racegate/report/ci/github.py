"""A gate for GitHub: the summary of a step, in Markdown, and annotations."""

from __future__ import annotations

from collections.abc import Iterable

from racegate.history.outcome import Checked, Failing
from racegate.jobs.gate import GateResult
from racegate.report.ci.failing import Files, checked_gate
from racegate.report.templating import render
from racegate.scenario.untrusted.text import printable_lines

# GitHub drops the summary of a step that is larger than 1 MiB, and shows ten annotations of a kind.
SUMMARY_BYTES_MAX = 1 << 20
ANNOTATIONS_MAX = 10
SHOWN_MAX = 20


def summary_of(result: GateResult, files: Files) -> str:
    """Markdown: the verdict, what is wrong with its replay lines, and the table of scenarios."""
    wrong = checked_gate(result, files).failing
    page = render("github.md.j2", result=result, wrong=wrong[:SHOWN_MAX], hidden=wrong[SHOWN_MAX:])
    if len(page.encode()) <= SUMMARY_BYTES_MAX:
        return page
    return f"{result.verdict}: too much is wrong for a summary; see the report in JSON.\n"


def summary_of_checked(checked: Checked, verdict: str) -> str:
    """The same of any other job: the cases take the place of the scenarios."""
    wrong = checked.failing
    page = render(
        "github_job.md.j2",
        checked=checked,
        verdict=verdict,
        wrong=wrong[:SHOWN_MAX],
        hidden=wrong[SHOWN_MAX:],
    )
    if len(page.encode()) <= SUMMARY_BYTES_MAX:
        return page
    return f"{verdict}: too much is wrong for a summary; see the report in JSON.\n"


def annotations_of(checked: Checked) -> list[str]:
    """Workflow commands: one for each signature that is not known, at most ANNOTATIONS_MAX."""
    found: dict[str, Failing] = {}
    for one in checked.failing:
        if not one.is_known:
            found.setdefault(one.signature, one)
    return [_annotation(one) for one in list(found.values())[:ANNOTATIONS_MAX]]


def _annotation(one: Failing) -> str:
    line = str(one.line) if one.file and one.line > 1 else ""
    properties = {"file": one.file, "line": line, "title": f"racegate: {one.name}: {one.signature}"}
    said = ",".join(f"{name}={_property(text)}" for name, text in properties.items() if text)
    text = "\n".join(filter(None, (one.message, one.replay and f"replay: {one.replay}")))
    return f"::error {said}::{_data(text)}"


def _data(text: str) -> str:
    """As GitHub's own toolkit writes it: a command is one line."""
    return _replaced(printable_lines(text), (("%", "%25"), ("\n", "%0A")))


def _property(text: str) -> str:
    return _replaced(_data(text), ((":", "%3A"), (",", "%2C")))


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for one, other in pairs:
        text = text.replace(one, other)
    return text
