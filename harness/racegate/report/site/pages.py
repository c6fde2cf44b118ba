"""The pages of the site, from what was read and from the witnesses that were run."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from racegate.history import __version__
from racegate.measure.evaluation.matrix import load_matrix
from racegate.report.cause.pair import Relation
from racegate.report.finding.page import SiteSection, Trail, finding_page, findings_page
from racegate.report.finding.pictured import PicturedFinding
from racegate.report.measured.matrix import render_html
from racegate.report.objects import CommitKind, Evidence
from racegate.report.site.boards import Board, Figure
from racegate.report.site.charts import Chart
from racegate.report.site.figures import MATRIX, board_of
from racegate.report.site.grids import Grid, GridCell
from racegate.report.site.markdown import Written, anchor_of, relative, written
from racegate.report.site.reports import Reports, SiteError
from racegate.report.templating import render

WITNESSES = "witnesses/index.html"
EVIDENCE = "evidence.html"
MATRIX_PAGE = "faults/matrix.html"
# Of folders, in the order of the navigation; others follow by their names.
SECTIONS = {
    "faults": "Faults",
    "search": "Search",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "interposer": "Interposer",
    "model": "Model",
    "gpu": "GPU",
    "campaigns": "Campaigns",
    "hostile": "Hostile input",
}
_COMMITS = {CommitKind.MEASURED: "at {}", CommitKind.COMMITTED: "committed with {}"}


class SitePage(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the site. path: from its folder; title: what it is"""

    path: str
    title: str
    html: str


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    path: str


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure says of itself. name: of its file; href: where that is listed"""

    name: str
    command: str
    commit: str
    href: str


def site_of(reports: Reports, witnesses: Mapping[str, PicturedFinding]) -> list[SitePage]:
    """All pages. witnesses: what was found, by the name of each file. Raises BadInputError."""
    pages = list(_Site(reports, board_of(reports), witnesses).pages())
    for path, count in Counter(page.path for page in pages).items():
        if count > 1:
            raise SiteError(f"{reports.folder}: two of its reports would be the page {path}")
    return pages


class _Site:
    """Pages that know of one another."""

    def __init__(
        self, reports: Reports, board: Board, witnesses: Mapping[str, PicturedFinding]
    ) -> None:
        self._reports = reports
        self._board = board
        self._witnesses = witnesses
        targets = {file: _html_of(file) for file in reports.pages}
        targets |= {one.file: one.file for one in reports.evidence}
        if reports.has(MATRIX):
            targets[MATRIX_PAGE] = MATRIX_PAGE
        self._texts = {
            file: written(text, file=file, targets=targets) for file, text in reports.pages.items()
        }
        self._paths = {target for target in targets.values() if target.endswith(".html")}
        self._sections = self._all_sections()

    def _all_sections(self) -> list[_Section]:
        folders = {file.partition("/")[0] for file in self._texts if "/" in file}
        known = [name for name in SECTIONS if name in folders]
        names = [*known, *sorted(folders - set(SECTIONS))]
        found = [("", "Overview", "index.html")]
        found += [("witnesses", "Witnesses", WITNESSES)] if self._witnesses else []
        found += [(name, SECTIONS.get(name, name), self._first_of(name)) for name in names]
        found.append(("evidence", "Commands and commits", EVIDENCE))
        return [_Section(name=name, title=title, path=path) for name, title, path in found]

    def _sections_from(self, path: str) -> tuple[SiteSection, ...]:
        """The navigation as a page has it."""
        here = path.partition("/")[0] if "/" in path else path.removesuffix(".html")
        here = "" if here == "index" else here
        return tuple(
            SiteSection(
                title=one.title,
                href=relative(path, one.path),
                current="" if one.name != here else "page" if one.path == path else "true",
            )
            for one in self._sections
        )

    def _first_of(self, folder: str) -> str:
        """The page of a folder that its others are found from."""
        readme = f"{folder}/README.md"
        files = [file for file in self._texts if file.startswith(f"{folder}/")]
        return _html_of(readme if readme in self._texts else files[0])

    def pages(self) -> Iterator[SitePage]:
        """In the order of the navigation."""
        yield self._index()
        if self._witnesses:
            yield self._all_witnesses()
            yield from self._witness_pages()
        yield from self._cells()
        for file, text in self._texts.items():
            if file != "README.md":
                yield self._report(file, text)
        if self._reports.has(MATRIX):
            matrix = load_matrix(self._reports.folder / MATRIX)
            html = render_html(matrix, sections=self._sections_from(MATRIX_PAGE))
            yield SitePage(path=MATRIX_PAGE, title="Kill matrix", html=html)
        files = [self._row(one, EVIDENCE) for one in self._reports.evidence]
        yield self._page("evidence", EVIDENCE, "Files, commands, commits", files=files)

    def _index(self) -> SitePage:
        board, path = self._board, "index.html"
        boards = [
            (name, [self._figure(one) for one in figures])
            for name, figures in (
                ("Proved", board.proved),
                ("Found", board.found),
                ("How fast", board.speed),
            )
            if figures
        ]
        root = self._texts.get("README.md")
        faults = board.charts.get("faults/index.html", ())
        grids = (*board.grids.get("vllm/index.html", ()), *board.grids.get(path, ()))
        return self._page(
            "index",
            path,
            "Overview",
            boards=boards,
            entries=self._entries(),
            charts=self._charts(faults[:1], path),
            grids=self._grids(grids, path),
            html="" if root is None else root.html,
        )

    def _figure(self, figure: Figure) -> dict[str, object]:
        source = self._source(figure.file, "index.html")
        # A file may be there without the page that tells of it.
        is_told = figure.page in self._paths
        href = relative("index.html", figure.page) if is_told else source.href
        return {"figure": figure, "href": href, "source": source}

    def _entries(self) -> list[dict[str, object]]:
        """Witnesses as their list has them."""
        return [
            {
                "name": name,
                "href": _page_of(name),
                "verdict": finding.outcome,
                "title": finding.title,
                "impact": finding.impact,
                "holds": finding.holds,
                "is_race": finding.relation is Relation.UNORDERED,
            }
            for name, finding in self._witnesses.items()
        ]

    def _all_witnesses(self) -> SitePage:
        groups = []
        for is_race, name, about in (
            (True, "Races", "Nothing orders the two operations of the pair."),
            (False, "Wrong under every timing", "No edge is missing: a value is wrong."),
        ):
            entries = [one for one in self._entries() if one["is_race"] is is_race]
            groups += [(name, about, entries)] if entries else []
        return self._page("witnesses", WITNESSES, "Witnesses", groups=groups)

    def _witness_pages(self) -> Iterator[SitePage]:
        """The report of each witness's finding, with the way to the others."""
        names = list(self._witnesses)
        for before, name, after in zip(["", *names], names, [*names[1:], ""], strict=False):
            path, finding = posixpath.join("witnesses", f"{name}.html"), self._witnesses[name]
            trail = Trail(
                home="index.html",
                home_title="All witnesses",
                before=_page_of(before) if before else "",
                after=_page_of(after) if after else "",
                sections=self._sections_from(path),
            )
            html = finding_page(finding, trail=trail)
            yield SitePage(path=path, title=finding.title, html=html)

    def _cells(self) -> Iterator[SitePage]:
        """What went wrong in each wrong cell of a release table, if the table has a page."""
        for path, findings in self._board.cells.items():
            home = f"{path.partition('/')[0]}/index.html"
            if home not in self._paths:
                continue
            trail = Trail(
                home=relative(path, home),
                home_title="All releases",
                sections=self._sections_from(path),
            )
            title = findings[0].name
            html = findings_page(title, findings, trail=trail)
            yield SitePage(path=path, title=title, html=html)

    def _report(self, file: str, text: Written) -> SitePage:
        path = _html_of(file)
        charts = self._board.charts.get(path, ())
        grids = self._board.grids.get(path, ())
        return self._page(
            "report",
            path,
            text.title,
            siblings=self._siblings(path),
            charts=self._charts(charts, path),
            grids=self._grids(grids, path),
            html=text.html,
            files=[self._row(one, path) for one in self._files_of(path, charts, grids)],
        )

    def _files_of(
        self, path: str, charts: Sequence[Chart], grids: Sequence[Grid]
    ) -> list[Evidence]:
        """The files that a page is made from; of the first page of a folder all that lie in it."""
        folder = posixpath.dirname(path)
        patterns = [f"{folder}/*"] if path.endswith("/index.html") else []
        patterns += [chart.file for chart in charts] + [grid.file for grid in grids]
        patterns.append(path.replace(".html", ".json"))
        files = {file for pattern in patterns for file in self._reports.matching(pattern)}
        return [one for one in self._reports.evidence if one.file in files]

    def _siblings(self, path: str) -> list[dict[str, str]]:
        folder = posixpath.dirname(path)
        if not folder:
            return []
        found = {
            _html_of(file): text.title
            for file, text in self._texts.items()
            if posixpath.dirname(file) == folder
        }
        if folder == "faults" and self._reports.has(MATRIX):
            found[MATRIX_PAGE] = "Every fault by oracle and strategy"
        first = sorted(found, key=lambda one: (one != self._first_of(folder), one))
        return [{"path": p, "href": relative(path, p), "title": found[p]} for p in first]

    def _charts(self, charts: Sequence[Chart], path: str) -> list[dict[str, object]]:
        shown: list[dict[str, object]] = []
        for chart in charts:
            pages = [meter.page if meter.page in self._paths else "" for meter in chart.meters]
            hrefs = [relative(path, page) if page else "" for page in pages]
            meters = list(zip(chart.meters, hrefs, strict=True))
            source = self._source(chart.file, path)
            shown.append({"chart": chart, "meters": meters, "source": source})
        return shown

    def _grids(self, grids: Sequence[Grid], path: str) -> list[dict[str, object]]:
        shown: list[dict[str, object]] = []
        for grid in grids:
            rows = [[self._linked(cell, path) for cell in row] for row in grid.rows]
            source = self._source(grid.file, path)
            shown.append({"grid": grid, "rows": rows, "source": source})
        return shown

    def _linked(self, cell: GridCell, path: str) -> GridCell:
        """A cell with the way to its page of the site, where it has one."""
        home = f"{cell.page.partition('/')[0]}/index.html"
        if not cell.page or home not in self._paths:
            return cell
        return msgspec.structs.replace(cell, href=relative(path, cell.page))

    def _source(self, pattern: str, path: str) -> _Source:
        """Of a file, or of all that fit a pattern."""
        files = set(self._reports.matching(pattern))
        found = [one for one in self._reports.evidence if one.file in files]
        commands = {one.command for one in found}
        commits = {_commit_of(one) for one in found}
        first = found[0].file if found else pattern
        return _Source(
            name=first if len(found) == 1 else f"{len(found)} files {pattern}",
            command=commands.pop() if len(commands) == 1 else "several commands",
            commit=commits.pop() if len(commits) == 1 else f"{len(commits)} commits",
            href=f"{relative(path, EVIDENCE)}#{anchor_of_file(first)}",
        )

    def _row(self, one: Evidence, path: str) -> dict[str, str]:
        """A line of a table of files."""
        return {
            "anchor": anchor_of_file(one.file),
            "href": relative(path, one.file),
            "file": one.file,
            "command": one.command,
            "commit": _commit_of(one),
            "machine": one.machine,
        }

    def _page(self, template: str, path: str, title: str, **values: object) -> SitePage:
        html = render(
            f"site/{template}.html.j2",
            path=path,
            title=title,
            sections=self._sections_from(path),
            version=__version__,
            **values,
        )
        return SitePage(path=path, title=title, html=html)


def _page_of(name: str) -> str:
    return relative(WITNESSES, f"witnesses/{name}.html")


def _html_of(file: str) -> str:
    """The page that Markdown becomes."""
    folder, _, name = file.rpartition("/")
    return posixpath.join(folder, "index.html" if name == "README.md" else f"{name[:-3]}.html")


def _commit_of(one: Evidence) -> str:
    return _COMMITS[one.kind].format(one.commit) if one.kind in _COMMITS else ""


def anchor_of_file(file: str) -> str:
    """What links call a line of the table of files."""
    return anchor_of(file.replace("/", " ").replace(".", " "))
