"""The table of patches against what is replaced in a process, and against the sources."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import cuda_torch
from patches import PATCHES, PROGRAM, VIRTUAL
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.program.launch import Program, open_device
from repository import ROOT

HARNESS = ROOT / "harness" / "racegate"
SCRIPT = ROOT / "tests" / "interpose" / "patched.py"
# What a package offers as a setting, data of an engine's own objects, and modules of our making.
NO_PATCHES = {
    ("torch.backends.cudnn", "enabled"),
    ("config", "disable"),  # torch._dynamo.config
    ("request", "mamba_cow_src_index"),
    ("request", "spec_token_ids"),
    ("params", "_bad_words_token_ids"),
    ("named", "__getattr__"),  # of a module that stands for one that is absent
    ("model", "expert_weights"),
    ("model", "moe_layers"),
    ("model", "num_moe_layers"),
}
# Of C functions and of functions that pass on; marks of our own on objects of others.
NO_NAMES = {"argtypes", "restype", "__doc__"}
OURS = ("racegate_", "_racegate_")
INSIDE = (
    [
        path
        for folder in ("interpose", "interpose/program", "interpose/gpu", "interpose/kernels")
        for path in sorted((HARNESS / folder).glob("*.py"))
    ]
    + sorted((HARNESS / "interpose/kernels/interpreted").glob("*.py"))
    + sorted((HARNESS / "targets").glob("*/inside/*.py"))
)


def named(by: str) -> Path:
    return HARNESS / f"{by.replace('.', '/')}.py"


@cuda_torch.needs_cuda_torch
def test_what_is_replaced_in_a_program_is_what_the_table_says(tmp_path: Path) -> None:
    """An alias of a patch, as of a module that was imported later, is the same value."""
    file = tmp_path / "patched.json"
    with open_device() as device:
        outcome = device.run(Program((str(SCRIPT), str(file))), Plan())
    assert outcome.ending is Ending.FINISHED, outcome.message
    values = {(owner, name): number for owner, name, number in json.loads(file.read_text())}
    # Rows about an object have words for it.
    rows = [one for one in (*PROGRAM, *VIRTUAL) if " " not in one.owner]
    table = {(one.owner, name) for one in rows for name in one.attributes}
    aliased = {values[place] for place in table & values.keys()}
    assert {place for place in values.keys() - table if values[place] not in aliased} == set()
    optional = {(one.owner, name) for one in rows if one.releases for name in one.attributes}
    assert table - values.keys() - optional == set()


def test_every_row_is_of_something_that_its_module_names() -> None:
    for one in PATCHES:
        tree = ast.parse(named(one.by).read_text(encoding="utf-8"))
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        words |= {str(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        words |= {f"create_{word}" for word in words}
        assert set(one.attributes) <= words, one


def test_no_row_stands_twice_and_all_say_why() -> None:
    rows = [(one.by, one.owner, name) for one in PATCHES for name in one.attributes]
    assert len(set(rows)) == len(rows)
    assert all(one.why for one in PATCHES)


def assigned(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(owner as written, attribute) of every assignment to an attribute, but to one's own."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr not in NO_NAMES:
                owner = ast.unparse(target.value)
                if owner.partition(".")[0] != "self" and not target.attr.startswith(OURS):
                    yield owner, target.attr


def own_attributes() -> set[str]:
    """Names of attributes that classes of racegate have."""
    found: set[str] = set()
    for path in HARNESS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found |= {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
            is_stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if is_stored and ast.unparse(node.value) == "self":
                found.add(node.attr)
    return found


def test_every_attribute_that_is_assigned_from_outside_is_in_the_table() -> None:
    own = own_attributes()
    missing = []
    for path in INSIDE:
        by = ".".join(path.relative_to(HARNESS).with_suffix("").parts)
        rows = {name for one in PATCHES if one.by == by for name in one.attributes}
        for owner, name in assigned(ast.parse(path.read_text(encoding="utf-8"))):
            if name not in rows | own and (owner, name) not in NO_PATCHES:
                missing.append((by, owner, name))
    assert missing == []
