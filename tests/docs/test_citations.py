"""What a file cites stands in the checkout, or is a public issue, data set or paper."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from racegate.faults.catalogue import FAULTS, VARIANTS
from racegate.measure.evaluation.truth_table import Motion, motion_scenario
from racegate.scenario.settings import CacheMode
from repository import ROOT, anchors_of, files_of_checkout, named

# A page by its path from the root; links of Markdown files are in test_markdown.
PAGE = re.compile(
    r"(?<![\w./-])((?:docs|reference|reports|scenarios|tests)/[\w/.-]+\.md)(?:#([\w-]+))?"
)
OUTWARD = re.compile(r"(?<![\w.])(?:\.\./)+[\w./-]+")
NUMBERED = re.compile(
    r"(\w+)[.,;:]?\s+(?:#\s+)?(?:notes?|sections?|chapters?)\s+(?:#\s+)?(?:[HI]-)?\d"
)
# A place in a document that has no file here; versions of packages have three parts.
PLACE = re.compile(r"\b((?:[a-z]+_)+[a-z]+|[Mm]echanism|[Cc]atalogue|notes)\s+\d+\.\d+(?![\w.])")
ISSUE = re.compile(r"\b[\w-]+#\d+")
DATA_SET = "Azure Public Dataset"

TEXTS = [p for p in files_of_checkout() if p.suffix in {".py", ".md", ".toml", ".j2"}]


def test_what_is_cited_is_in_the_checkout() -> None:
    for path in TEXTS:
        _cites_what_is_there(path)


def _cites_what_is_there(path: Path) -> None:
    text = path.read_text()
    for page, anchor in PAGE.findall(text) if path.suffix != ".md" else ():
        assert (ROOT / page).is_file(), f"{named(path)} cites {page}"
        assert not anchor or anchor in anchors_of(ROOT / page), f"{named(path)}: {page}#{anchor}"
    for target in OUTWARD.findall(text):
        assert (path.parent / target).resolve().is_relative_to(ROOT), f"{named(path)}: {target}"
    for document in NUMBERED.findall(text) + PLACE.findall(text):
        assert document == "DEFINITION", f"{named(path)} cites a section of {document}"


def origins() -> dict[str, str]:
    """Where every script, fault and design says it comes from."""
    found = {fault.name: fault.origin for fault in FAULTS + VARIANTS}
    for path in files_of_checkout("scenarios/*.toml"):
        found[path.name] = tomllib.loads(path.read_text(encoding="utf-8")).get("origin", "")
    return found | {"halffixes": motion_scenario(Motion.CONDENSE, CacheMode.NONE).origin}


def test_an_origin_is_public() -> None:
    """A public issue or data set, or a page of the checkout."""
    for name, origin in origins().items():
        pages = [page for page, _ in PAGE.findall(origin) if (ROOT / page).is_file()]
        assert ISSUE.search(origin) or pages or DATA_SET in origin, f"{name} is from {origin!r}"
