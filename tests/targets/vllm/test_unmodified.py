"""The maker of the page of unmodified releases, from what gates say of small engines."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import unmodified
from unmodified import Unmodified, cells, judged_as, keep, page, records, to_run

from racegate.history.finding import Finding, FindingKind, Verdict
from racegate.history.outcome import Comparison, RunResult
from racegate.scenario.files import load_for
from racegate.targets.vllm.cell import Cell

CELL = Unmodified(release="0.33.0", runner="v1", mode="align")
TOLD = "racegate: not judged: image_positions: it has images: --positions mrope\nracegate: an end\n"
CHANGE = Finding(kind=FindingKind.CHANGE, signature="change/x", message="step 3: x is 1")


def result(name: str, comparison: Comparison | None, **fields: object) -> RunResult:
    beside = {"comparison": comparison, "verdict": Verdict.PROVED, "device": "virtual"}
    return msgspec.convert(msgspec.to_builtins({"scenario": name, **beside, **fields}), RunResult)


def judged(code: int, *results: RunResult, told: str = TOLD) -> Unmodified:
    return judged_as(CELL, code, results, told, seconds=12.3)


def test_a_record_says_what_ran_and_what_did_not() -> None:
    same = Comparison(base="vLLM 0.33.0 v1 align")
    one = judged(
        0,
        result("small", same),
        result("quiet", same, unmet=["no row moved", "nothing was zeroed"]),
        result("broken", same, message="KeyError: 'A'"),
        result("odd", same, refused="this release does not take request F"),
    )
    assert (one.code, one.compared) == (0, 3)
    assert one.left_out == {"image_positions": "it has images: --positions mrope"}
    assert one.refused == {"odd": "this release does not take request F"}
    assert one.unmet == {"quiet": "no row moved; nothing was zeroed"}
    assert one.failed == {"broken": "KeyError: 'A'"}
    assert (one.findings, one.message) == ({}, "")


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        (Comparison(base="x", changed=CHANGE, unmet=("no row moved",)), "step 3: x is 1"),
        (Comparison(base="x", new=(CHANGE,)), "step 3: x is 1"),
        (Comparison(base="x", unmet=("the base was not judged: it is gone",)), "the base was not"),
        (None, "it was not compared"),
    ],
)
def test_what_is_not_alike_is_a_finding_of_the_record(beside: Comparison | None, told: str) -> None:
    one = judged(1, result("small", beside))
    assert one.findings["small"].startswith(told)
    assert f"small: {told}" in page([one])


def test_a_gate_without_a_result_leaves_its_last_words() -> None:
    one = judged(2, told="starting\nracegate: vLLM 0.9.0 is not set up\n")
    assert one.message == "racegate: vLLM 0.9.0 is not set up"
    assert one.message in page([one])


def test_a_page_counts_what_is_clean() -> None:
    clean = judged(0, result("small", Comparison(base="x")))
    red = msgspec.structs.replace(clean, mode="none", code=1, compared=7, findings={"a": "b"})
    clean = msgspec.structs.replace(clean, load=3.8)
    red = msgspec.structs.replace(red, load=0.0)
    text = page([clean, red])
    assert "**1 of 2 end with exit code 0**, with 1 scenarios compared" in text
    row = f"| 0.33.0 | V1 | align |  | all | 0 | 0 | 1 | 1 | 0 | 0 | 12 | 4 | {clean.commit} |  |"
    assert row in text.splitlines()
    assert f"| 7 | 1 | 0 | 0 | 12 |  | {clean.commit} | a: b |" in text
    assert "| it has images: --positions mrope | image_positions | 2 |" in text.splitlines()


def test_a_cell_is_run_until_it_is_clean(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    other = msgspec.structs.replace(CELL, options=("--graphs", "few"))
    for code, left in ((1, [CELL, other]), (0, [other])):
        keep(kept, msgspec.structs.replace(CELL, code=code))
        assert to_run([CELL, other], records(kept)) == left
    assert [one.code for one in records(kept)] == [0]


def test_cells_of_the_file_are_distinct_and_can_run_what_they_name() -> None:
    asked = [one.asked for one in cells()]
    assert len({*asked}) == len(asked)
    for one in cells():
        options = {
            name.removeprefix("--").replace("-", "_"): value
            for name, value in zip(one.options[::2], one.options[1::2], strict=True)
        }
        fields = {"of": "vllm", "release": one.release, "runner": one.runner, "mode": one.mode}
        cell = msgspec.convert({**fields, **options}, Cell, strict=False)
        for name in one.scenarios:
            scenario = load_for("vLLM", unmodified.SCRIPTS / f"{name}.toml")
            assert cell.cannot_run(scenario) == "", (name, one.command)


def test_a_checkout_is_gated_beside_its_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its JSON is read as the gate writes it, by a script that stands in for the gate."""
    site = tmp_path / "site"
    package = site / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    said = tmp_path / "said.json"
    results = [result("small", Comparison(base="x"))]
    said.write_bytes(
        msgspec.json.encode(unmodified.GatedResults(schema="1", verdict=results[0].verdict,
                                                    exit_code=0, results=tuple(results)))
    )  # fmt: skip
    gate = tmp_path / "gate"
    gate.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        "given = dict(zip(sys.argv[5::2], sys.argv[6::2]))\n"
        "assert (pathlib.Path(given['--path'], 'vllm', '__init__.py')).exists()\n"
        "assert len([*pathlib.Path(given['--scenarios']).iterdir()]) == 2\n"
        f"shutil.copy({str(said)!r}, given['--json'])\n"
        "print('racegate: not judged: other: it cannot', file=sys.stderr)\n"
    )
    gate.chmod(0o755)
    monkeypatch.setattr(unmodified.sys, "executable", str(gate))
    monkeypatch.setattr(unmodified, "site_of", lambda release: package)
    asked = msgspec.structs.replace(CELL, scenarios=("prefix_hit", "second_turn"))
    one = unmodified.gate(asked)
    assert (one.code, one.compared, one.findings) == (0, 1, {})
    assert one.left_out == {"other": "it cannot"}


def test_a_release_that_is_not_set_up_is_left_for_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unmodified.run_one(CELL, tmp_path / "kept.jsonl")
    assert "not set up here: racegate vllm setup --release 0.33.0" in capsys.readouterr().out
    assert records(tmp_path / "kept.jsonl") == []
