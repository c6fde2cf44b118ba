"""The page of GPU figures: it says what its files say, and which limits are missed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.report.measured.gpu import PAGE, ReportError, load_folder, render_gpu, targets

COMMITTED = Path(__file__).parents[2] / "reports" / "gpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(COMMITTED, tmp_path / "gpu"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_committed_page_is_what_its_files_give() -> None:
    page = (COMMITTED / PAGE).read_text(encoding="utf-8")
    assert page == render_gpu(load_folder(COMMITTED))


def test_the_command_writes_the_page(folder: Path) -> None:
    (folder / PAGE).unlink()
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0
    assert (folder / PAGE).read_text() == (COMMITTED / PAGE).read_text()
    assert "held schedules per second" in result.stdout


def test_a_limit_that_is_missed_is_said_with_by_how_much(folder: Path) -> None:
    bench = msgspec.json.decode((folder / "bench.json").read_bytes())
    for entry in bench["results"]:
        if entry["name"] == "mamba2_update_share":
            entry["value"] = 0.68
    (folder / "bench.json").write_bytes(msgspec.json.encode(bench))
    row = "| Mamba2 update, share of the copy bandwidth | 0.68 (at least 0.85) | **no**, by 20.0% |"
    assert row in render_gpu(load_folder(folder))


def test_a_figure_in_two_files_is_refused(folder: Path) -> None:
    shutil.copy(folder / "bench.json", folder / "bench_old.json")
    with pytest.raises(ReportError, match=r"two bench.* hold the figure copy_bandwidth"):
        load_folder(folder)


def test_tests_of_a_gpu_are_counted_by_function(folder: Path) -> None:
    counts = {
        "tests/gpu/test_gpu_engine.py::test_every_witness_replays": {"passed": 48, "failed": 1},
        "tests/kernels/test_fill.py::test_fill": {"passed": 1},
    }
    content = {"environment": {"gpu": "some"}, "tests": counts}
    (folder / "tests.json").write_bytes(msgspec.json.encode(content))
    page = render_gpu(load_folder(folder))
    assert "| every witness replays | 48 | 1 | 0 |" in page
    assert "| fill |" not in page


def test_kernels_of_others_stand_beside_those_here_by_rows_of_the_batch(folder: Path) -> None:
    name = "mamba2_update_float32_k3_r32"
    entries = [
        {"name": f"{name}_racegate_share", "value": 0.9, "unit": "ratio", "detail": "of it"},
        {"name": f"{name}_vllm_over_own", "value": 1.2, "unit": "ratio", "detail": "vllm 0.32: x"},
        {"name": "fla_missing", "value": 0.0, "unit": "none", "detail": "not installed"},
    ]
    content = {"environment": {"gpu": "one"}, "results": entries}
    (folder / "peers.json").write_bytes(msgspec.json.encode(content))
    page = render_gpu(load_folder(folder))
    assert "| rows of the batch | | 32 |" in page
    assert "| mamba2_update_float32_k3 | share | 0.900 |" in page
    assert "| mamba2_update_float32_k3 | time of vllm (vllm 0.32) | 1.200 |" in page
    assert "* fla_missing: not installed" in page


def test_one_run_that_hung_is_a_limit_missed(folder: Path) -> None:
    change(folder / "soak.json", '"hung": []', '"hung": ["two-row-cycle"]')
    (hung,) = [t for t in targets(load_folder(folder)) if t.name.startswith("of them hung")]
    assert (hung.value, hung.is_met) == (1, False)
    row = "| of them hung, failed, or ended by the watchdog | 1 (at most 0) | **no** |"
    assert row in render_gpu(load_folder(folder))


@pytest.mark.parametrize("name", ["replay.json", "soak*.json", "bench*.json"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    for path in folder.glob(name):
        path.unlink()
    with pytest.raises(ReportError, match=re.escape(f"holds no {name}")):
        render_gpu(load_folder(folder))


def test_a_missing_figure_is_named(folder: Path) -> None:
    change(folder / "bench.json", '"mamba2_update_share"', '"renamed"')
    with pytest.raises(ReportError, match=r"no bench.* holds the figure mamba2_update_share"):
        render_gpu(load_folder(folder))


def test_a_file_that_is_no_json_is_named(folder: Path) -> None:
    (folder / "ab_align.json").write_text("{")
    with pytest.raises(ReportError, match=r"ab_align\.json: cannot be read"):
        load_folder(folder)


def test_a_file_of_another_kind_is_said(folder: Path) -> None:
    (folder / "replay.json").write_text('{"schema": "racegate/1", "witness": "one alone"}')
    with pytest.raises(ReportError, match=r"replay\.json: not what the page needs.*environment"):
        load_folder(folder)
