"""The Python API: its examples, its page, and that importing it is cheap."""

from __future__ import annotations

import ast
import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import racegate
import racegate.strategies
from api_page import classes, functions, page
from racegate.check.repro import public
from repository import ROOT


def test_every_example_is_true(tmp_path: Path) -> None:
    """They are one session, in the order of the page."""
    session = {"racegate": racegate, "folder": tmp_path}
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    parser = doctest.DocTestParser()
    for one in functions(racegate):
        examples = parser.get_doctest(one.example, session, one.name, None, 0)
        runner.run(examples, clear_globs=False)
        session = examples.globs
    assert runner.tries > 15
    assert runner.failures == 0


def test_the_page_is_not_stale() -> None:
    stale = "make it again: python tests/helpers/api_page.py docs/api.md"
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == page(racegate), stale


def test_every_call_has_an_example_and_a_sentence() -> None:
    assert [one.name for one in functions(racegate) if not one.example] == [
        "observe",
        "agree",
        "declare_copies",
    ]
    assert all(one.text for one in (*functions(racegate), *classes(racegate)))


def test_what_is_public_is_what_is_listed() -> None:
    tree = ast.parse(Path(public.__file__).read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    calls = {name for name in defined if not name.startswith("_")}
    elsewhere = {"observe", "agree", "declare_copies", "draw", "__version__"}
    assert calls <= set(racegate.__all__) <= vars(public).keys() | elsewhere
    assert set(racegate.__all__) <= set(dir(racegate))
    with pytest.raises(AttributeError, match="no attribute 'proof'"):
        racegate.proof  # noqa: B018


def test_importing_costs_nothing_until_a_name_is_used() -> None:
    program = """
import sys, racegate
assert not {"numpy", "msgspec", "typer", "hypothesis"} & set(sys.modules)
racegate.observe
assert "numpy" not in sys.modules
racegate.run
assert "numpy" in sys.modules and not {"torch", "hypothesis", "jinja2"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_verdict_that_is_not_expected_says_what_to_do() -> None:
    scenario = racegate.load(racegate.scripts() / "finish_and_condense.toml")
    result = racegate.run(scenario, fault="accepted-copy-after-row-move")
    with pytest.raises(racegate.NotProvedError) as raised:
        racegate.assert_proved(result)
    said = str(raised.value).splitlines()
    assert said[0] == "finish-and-condense is CONFLICT, not PROVED or BENIGN"
    assert "no path of edges orders them" in said[1]
    assert said[-1].startswith("replay: racegate run FILE --fault ")
    with pytest.raises(racegate.BadInputError, match=r"build\('nothing'\)"):
        racegate.build(name="nothing", request=[])


def test_strategies_are_public() -> None:
    assert isinstance(racegate.strategies.scenarios().example, object)
