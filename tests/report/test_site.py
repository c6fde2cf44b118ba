"""The site of reports: its links lead somewhere, its numbers are those of the files, and what a
report says is text in it.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from typer.testing import CliRunner

from pictured import path_of
from racegate.cli.app import app
from racegate.measure.evaluation.source.results import score_of
from racegate.report.measured.objects import SourceMutationObject
from racegate.report.objects import CommitKind
from racegate.report.site.charts import Meter, Tone, parts
from racegate.report.site.figures import board_of
from racegate.report.site.markdown import written
from racegate.report.site.reports import SiteError, load_reports
from repository import ROOT

REPORTS = ROOT / "reports"
NASTY = "<script>alert(1)</script>\u202e"


class Links(HTMLParser):
    """Links and anchors of a page, and the elements that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.elements: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            if name == "href":
                self.links.append(value or "")
            elif name == "id":
                assert value not in self.anchors, f"two anchors {value}"
                self.anchors.add(value or "")
            elif name in ("src", "srcset", "action", "data") or name.startswith("on"):
                self.loaded.append(value or "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path.resolve(): Links(path) for path in site.rglob("*.html")}


def inner(pages: dict[Path, Links]) -> Iterator[tuple[Path, Path, str]]:
    """(page, target, anchor) of every link that stays in the site."""
    for page, found in pages.items():
        for link in found.links:
            parts_ = urlsplit(link)
            if not parts_.scheme and not parts_.netloc:
                target = (page.parent / unquote(parts_.path)).resolve() if parts_.path else page
                yield page, target, parts_.fragment


def test_every_link_leads_to_what_is_there(site: Path, pages: dict[Path, Links]) -> None:
    looked = 0
    for page, target, anchor in inner(pages):
        assert target.is_file(), f"{page}: {target}"
        assert target.is_relative_to(site.resolve())
        if anchor and target in pages:
            assert anchor in pages[target].anchors, f"{page}: {target}#{anchor}"
        looked += 1
    assert looked > 500


def test_every_page_is_found_from_the_first(site: Path, pages: dict[Path, Links]) -> None:
    leads: dict[Path, set[Path]] = {}
    for page, target, _ in inner(pages):
        leads.setdefault(page, set()).add(target)
    found, ways = set(), [(site / "index.html").resolve()]
    while ways:
        page = ways.pop()
        if page not in found and page in pages:
            found.add(page)
            ways += leads.get(page, ())
    assert found == set(pages)


def test_every_page_has_the_navigation_of_the_site(pages: dict[Path, Links]) -> None:
    """Pages of findings and the matrix too, which are files of their own elsewhere."""
    for page, found in pages.items():
        assert '<nav aria-label="Sections">' in page.read_text(), page
        assert any(link.endswith("evidence.html") for link in found.links), page


def test_a_wrong_cell_of_a_release_leads_to_what_went_wrong(
    site: Path, pages: dict[Path, Links]
) -> None:
    """Each to its own page, with the command that shows it again; the others to none."""
    grid = pages[(site / "vllm" / "index.html").resolve()]
    led = [link for link in grid.links if link.startswith("cells/") and link.endswith(".html")]
    wrong = {}
    for file in (REPORTS / "vllm" / "cells").glob("*.json"):
        cell = json.loads(file.read_text())
        for name, judged in cell["scenarios"].items():
            if judged["verdict"] == "DIVERGENT":
                wrong[f"cells/{file.stem}-{name}.html"] = judged
    assert sorted(led) == sorted(wrong)
    for link, judged in wrong.items():
        text = unescape((site / "vllm" / link).read_text())
        release, runner, mode, name = Path(link).stem.split("-")
        command = f"racegate vllm run {name} --release {release} --runner {runner} "
        assert f"{command}--cache-mode {mode} --" in text
        for said in judged["wrong"]:
            assert said in text
        for conflict in judged["conflicts"]:
            if conflict["effect"] in ("wrong", "divergent"):
                (operation, until), *_ = conflict["holds"]
                assert f"--hold '{operation} until {until}'" in text
                assert conflict["does"][0] in text
                assert conflict["second"] in text
                assert "<svg" in text


def test_links_that_leave_the_site_are_public(pages: dict[Path, Links]) -> None:
    outside = {link for found in pages.values() for link in found.links if urlsplit(link).scheme}
    assert outside
    for link in outside:
        host = urlsplit(link).hostname or ""
        assert urlsplit(link).scheme == "https", link
        assert "." in host and not host.endswith((".local", ".internal", ".lan")), link
        with pytest.raises(ValueError, match="does not appear"):
            ipaddress.ip_address(host)


def test_pages_load_nothing(pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        assert found.loaded == [], page
        assert found.elements["link"] == found.elements["iframe"] == 0
        assert "url(" not in page.read_text()
    scripts = {page.parent.name for page, found in pages.items() if found.elements["script"]}
    assert scripts == {"witnesses"}, "the slider of a finding is the one script"


def test_figures_are_those_of_the_files(site: Path) -> None:
    page = (site / "index.html").read_text()
    matrix = json.loads((REPORTS / "faults" / "matrix.json").read_text())
    mutants = json.loads((REPORTS / "faults" / "mutants.json").read_text())["mutants"]
    campaigns = [json.loads(f.read_text()) for f in (REPORTS / "search").glob("campaign_*.json")]
    replaced = json.loads((REPORTS / "search" / "campaigns.json").read_text())
    killed = sum(one["fate"] == "killed" for one in mutants)
    matter = sum(one["fate"] != "equivalent" for one in mutants)
    schedules = sum(one["campaign"]["schedules"] for one in campaigns)
    schedules += sum(one["schedules"] for one in replaced)
    for shown in (
        f">{matrix['totals']['faults']} of {matrix['totals']['faults']}<",
        f">{killed} of {matter}<",
        f">{schedules:,}<",
    ):
        assert shown in page
    for strategy in matrix["totals"]["strategies"].values():
        assert f"{strategy['killed']} of {matrix['totals']['faults']} by a wrong value" in page


def test_the_command_says_what_it_wrote(site: Path) -> None:
    said = json.loads((site.parent / "said.json").read_text())
    assert said == json.loads((site / "site.json").read_text())
    written_ = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    named = {one["path"] for one in said["pages"]} | {one["file"] for one in said["files"]}
    others = {name for name in written_ if name.endswith(".witness.json")} | {"site.json"}
    assert named | others == written_
    assert all((site / one["path"]).stat().st_size == one["bytes"] for one in said["pages"])


def test_every_file_of_figures_says_what_made_it() -> None:
    """But for what a report has that nobody has written down yet."""
    reports = load_reports(REPORTS, {"faults/matrix.json": "abc1234"})
    known = {one.file: one for one in reports.evidence}
    assert known["faults/matrix.json"].command == "make matrix"
    assert known["faults/matrix.json"].kind is CommitKind.COMMITTED
    assert known["search/campaign_8.json"].kind is CommitKind.MEASURED
    assert "H200" in known["gpu/bench.json"].machine
    assert sum(bool(one.command) for one in reports.evidence) > 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small folder of reports."""
    (tmp_path / "reports" / "faults").mkdir(parents=True)
    (tmp_path / "reports" / "README.md").write_text("# Reports\n\n* [one](faults/README.md)\n")
    (tmp_path / "reports" / "faults" / "README.md").write_text("# One\n\nText.\n")
    return tmp_path / "reports"


def test_new_reports_are_taken_by_their_names(folder: Path) -> None:
    source = (REPORTS / "faults" / "source_engine.json").read_text()
    report = msgspec.json.decode(source, type=SourceMutationObject).report
    (folder / "faults" / "source_room.json").write_text(source)
    judged = {
        "verdict": "DIVERGENT",
        "steps": 4,
        "events": 9,
        "runs": 3,
        "is_complete": True,
        "cpu_s": 0.5,
    }
    cell = {
        "release": "0.5.13",
        "model": "dense",
        "scenarios": {"one": judged},
    }
    (folder / "sglang" / "cells").mkdir(parents=True)
    (folder / "sglang" / "cells" / "x.json").write_text(json.dumps(cell))
    board = board_of(load_reports(folder, {}))
    assert [(one.value, one.page) for one in board.found] == [
        (f"{score_of(report.results).score:.1f} %", "faults/source_room.html"),
        ("1 of 1", "sglang/index.html"),
    ]
    (grid,) = board.grids["sglang/index.html"]
    assert [cell.text for cell in grid.rows[0]] == ["0.5.13 dense", "✖ DIVERGENT 3"]


def test_what_a_report_says_is_text(folder: Path) -> None:
    text = f"# {NASTY}\n\n{NASTY} [x](javascript:alert(1)) [y](http://local/) [z](../../etc)\n\n"
    text += f"| | {NASTY} |\n|---|---|\n| `{NASTY}` | b |\n\n    {NASTY}\n\n## Two\n\n## Two\n"
    page = written(text, file="faults/README.md", targets={})
    assert "<script" not in page.html
    assert "\u202e" not in page.html + page.title
    assert "href" not in page.html
    assert 'id="two"' in page.html
    assert 'id="two-1"' in page.html
    (folder / "faults" / "README.md").write_text(text)
    (folder / "faults" / f"{NASTY.replace('/', '-')}.md").write_text(text)
    (folder / "sources.toml").write_text(
        f'[[source]]\nfiles = "*.json"\ncommand = "{NASTY[:-1]}"\n'
    )
    (folder / "faults" / "x.json").write_text(json.dumps({"environment": {"cpu": NASTY}}))
    # A page at the top, and figures without a page.
    (folder / "notes.md").write_text("Notes.\n")
    shutil.copy(REPORTS / "faults" / "source_engine.json", folder / "faults" / "source_x.json")
    target = folder.parent / "site"
    done = CliRunner().invoke(app, words_for(folder, target))
    assert done.exit_code == 0, done.output
    for path in target.rglob("*.html"):
        if path.parent.name != "witnesses" or path.name == "index.html":
            assert Links(path).elements["script"] == 0
            assert "\u202e" not in path.read_text()
    pages_ = {path.resolve(): Links(path) for path in target.rglob("*.html")}
    assert all(to.is_file() for _, to, _ in inner(pages_))


def words_for(folder: Path, target: Path) -> list[str]:
    witnesses = folder.parent / "few"
    witnesses.mkdir(exist_ok=True)
    shutil.copy(path_of("stale-tenant-state"), witnesses)
    return ["report", str(folder), "--site", str(target), "--witnesses", str(witnesses)]


def test_links_between_reports_lead_to_their_pages() -> None:
    targets = {"a/README.md": "a/index.html", "b/c.md": "b/c.html", "b/d.json": "b/d.json"}
    text = "# T\n\n[1](../b/c.md#x) [2](../b/d.json) [3](../a) [4](#y) [5](../../docs/q.md)\n"
    page = written(text, file="a/README.md", targets=targets)
    for link in ("../b/c.html#x", "../b/d.json", "index.html", "#y"):
        assert f'href="{link}"' in page.html
    assert page.html.count("href") == 4, "what is not in the site is no link"
    assert " 5" in page.html


def test_a_place_that_is_no_site_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    done = CliRunner().invoke(app, words_for(folder, tmp_path / "mine"))
    assert done.exit_code == 2
    assert "holds other things than a site" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    assert CliRunner().invoke(app, words_for(folder, tmp_path / "file")).exit_code == 2


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("faults/mutants.json", "{", "cannot be read"),
        ("faults/mutants.json", '{"schema": "x"}', "not what its page is made from"),
        ("sources.toml", "[[source]]\nfile = 1\n", "sources.toml"),
        ("search/campaign.json", '{"campaign": 3}', "not what its page is made from"),
        ("search/campaigns.json", '[{"name": "one"}]', "not what its page is made from"),
    ],
)
def test_a_bad_file_is_named_before_anything_is_written(
    folder: Path, file: str, content: str, said: str
) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(content)
    with pytest.raises(SiteError, match=said):
        board_of(load_reports(folder, {}))


def test_a_folder_without_reports_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        done = CliRunner().invoke(app, ["report", str(folder), "--site", str(tmp_path / "s")])
        assert done.exit_code == 2
        assert str(folder) in done.stderr.replace("\n", "")
    for words in (["report"], ["report", str(tmp_path), "--json", "-"]):
        assert CliRunner().invoke(app, words).exit_code == 2
    assert not list((tmp_path / "s").iterdir())


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (folder / "faults" / "x.json").symlink_to(tmp_path / "secret.json")
    assert load_reports(folder, {}).evidence == ()


def test_two_reports_of_one_page_are_refused(folder: Path) -> None:
    (folder / "witnesses").mkdir()
    (folder / "witnesses" / "README.md").write_text("# Mine\n")
    done = CliRunner().invoke(app, words_for(folder, folder.parent / "site"))
    assert done.exit_code == 2
    assert "witnesses/index.html" in done.stderr


def test_a_bar_says_in_words_what_it_shows() -> None:

    meter = Meter(
        label="x", parts=parts(seen=(3, Tone.GOOD), missed=(1, Tone.BAD), else_=(0, Tone.HALF))
    )
    assert meter.said == "3 of 4 seen; 1 missed"
    assert [(begins, width) for begins, width, _ in meter.pieces] == [(0, 75), (75, 25)]
