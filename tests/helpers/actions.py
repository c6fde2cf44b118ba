"""GitHub's composite actions and workflows, as far as this repository uses them: their steps, and
what a runner makes of them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from repository import ROOT

_EXPRESSION = re.compile(r"\$\{\{ *(?:inputs|matrix)\.([\w-]+) *\}\}")


def document(path: str) -> Any:
    """A YAML file of the checkout, by YAML 1.2: `on` is a text."""
    return YAML(typ="safe", pure=True).load((ROOT / path).read_text())


def filled(text: str, inputs: Mapping[str, str]) -> str:
    """With inputs, or what a matrix gives a job, in the place of expressions. No other is known."""
    found = _EXPRESSION.sub(lambda match: inputs[match[1]], text)
    assert "${{" not in found, f"an expression that this runner does not know: {text}"
    return found


def is_run(step: Mapping[str, Any], inputs: Mapping[str, str]) -> bool:
    """Whether a step's condition holds: an input that is not empty, or always."""
    condition = step.get("if", "always()")
    if condition == "always()":
        return True
    wanted = re.fullmatch(r"inputs\.([\w-]+) != ''", condition)
    assert wanted, f"a condition that this runner does not know: {condition}"
    return inputs[wanted[1]] != ""


def scripts_of(
    steps: list[dict[str, Any]], inputs: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """(script, environment) of the steps that run something, those of local actions too."""
    for step in steps:
        if not is_run(step, inputs):
            continue
        if "run" in step:
            env = {name: filled(value, inputs) for name, value in step.get("env", {}).items()}
            yield step["run"], env
        elif step["uses"].startswith("./"):
            action = document(f"{step['uses']}/action.yml")
            given = {name: said["default"] for name, said in action["inputs"].items()}
            yield from scripts_of(action["runs"]["steps"], given | step.get("with", {}))


def run_script(script: str, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """As a runner does it: bash that ends with the first error."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
