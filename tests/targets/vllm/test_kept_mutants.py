"""How many mutants a gate notices, from the files that judging them has kept."""

from __future__ import annotations

from pathlib import Path

import kept_mutants
import msgspec
import pytest
from kept_mutants import HERE, JudgedMutant, in_all_settings, scores, tally


def mutant(key: str, fate: str, how: str = "") -> JudgedMutant:
    """One that is known by its key."""
    return JudgedMutant(key, "runner.py", "step", 1, key, "pass", fate, how)


def kept(path: Path, *mutants: JudgedMutant) -> None:
    """As `racegate vllm mutate --keep` writes them."""
    path.write_bytes(b"".join(msgspec.json.encode(("state", one)) + b"\n" for one in mutants))


def entries(path: Path, reasons: dict[str, str]) -> None:
    """A list of mutants with what is said of each. reasons: by key"""
    path.write_text(
        "".join(
            f'[[equivalent]]\nfile = "runner.py"\nscope = "step"\n'
            f'before = "{key}"\nafter = "pass"\nreason = "{reason}"\n'
            for key, reason in reasons.items()
        )
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One sample: A is noticed, B elsewhere, C changes nothing, D lacks a configuration, E is
    missed, and F and G are no mutants of a started engine.
    """
    sample = [mutant("A", "killed"), *(mutant(key, "survived") for key in "BCDE")]
    no_mutants = (mutant("F", "unreached"), mutant("G", "killed", "SyntaxError: of an operator"))
    kept(tmp_path / "sample.jsonl", *sample, *no_mutants)
    kept(tmp_path / "sample-v1-align.jsonl", mutant("B", "killed"), mutant("E", "survived"))
    entries(tmp_path / "equivalent.toml", {"C": "nothing reads it"})
    entries(tmp_path / "missing.toml", {"D": "configuration: ranks", "E": "scenario: one more"})
    monkeypatch.setattr(kept_mutants, "HERE", tmp_path)
    return tmp_path


def test_what_is_noticed_in_any_setting_counts_and_what_changes_nothing_does_not(
    folder: Path,
) -> None:
    found = tally(in_all_settings(folder / "sample.jsonl", "v1"), "v1")
    assert (found.noticed, found.matter, found.lacks) == ({*"AB"}, {*"ABDE"}, {"D"})


def test_samples_are_summed_and_a_mutant_of_two_samples_differs_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(folder / "other.jsonl", mutant("A", "killed"), mutant("H", "killed"))
    samples = (("v1", "1", "sample", 1, 4), ("v1", "2", "other", 1, 2), ("v2", "3", "other", 2, 2))
    monkeypatch.setattr(kept_mutants, "SAMPLES", samples)
    assert [row[2:] for row in scores(folder) if row[0] == "V1"] == [
        ("1 of 4 (25 %)", "2 of 4 (50 %)", "2 of 3 (67 %)"),
        ("1 of 2 (50 %)", "2 of 2 (100 %)", "2 of 2 (100 %)"),
        ("2 of 6 (33 %)", "4 of 6 (67 %)", "4 of 5 (80 %)"),
        ("", "3 of 5 (60 %)", "3 of 4 (75 %)"),
    ]


def test_the_committed_page_has_the_scores_of_the_committed_mutants() -> None:
    text = (HERE / "README.md").read_text()
    assert [row for row in scores(HERE) if f"| {' | '.join(row)} |" not in text] == []
