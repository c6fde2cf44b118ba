"""A draft of the report to whoever maintains the engine: one finding, with all that shows it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import msgspec

from racegate.check.judge import Judged
from racegate.check.repro.explain import Explanation
from racegate.history.witness import Witness
from racegate.report.cause.account import Account
from racegate.report.cause.pair import Relation
from racegate.report.templating import render
from racegate.scenario.untrusted.text import printable_json


def upstream_report(
    witness: Witness,
    account: Account,
    explanation: Explanation,
    blocking: Judged,
    environment: Mapping[str, str],
) -> str:
    """Markdown. blocking: the run in which the host waits behind every operation, without holds"""
    return render(
        "upstream.md.j2",
        witness=witness,
        account=account,
        difference=explanation.difference,
        wait=_about_waits(account, is_wrong=bool(blocking.result.findings)),
        scenario=textwrap.indent(_scenario_text(witness), "    "),
        environment=environment,
    )


def _about_waits(account: Account, *, is_wrong: bool) -> str:
    """Why a wait helps or does not, by what a run shows that has all of them."""
    if is_wrong:
        return (
            "No: it goes wrong too when the host waits for the whole device behind "
            "every operation. What is computed is wrong, not when."
        )
    every = "with the host waiting for the whole device behind every operation nothing is wrong"
    if account.relation is Relation.UNORDERED:
        return f"Yes, for no edge orders the pair: {every}."
    return f"Perhaps: {every}, but which wait is enough is not known."


def _scenario_text(witness: Witness) -> str:
    """What is not as it would be by default, a line for each part."""
    said = _told(witness.scenario)
    assert isinstance(said, dict)
    parts = []
    for name, value in said.items():
        some = value if isinstance(value, list) else [value]
        parts += [f"{name}: {msgspec.json.encode(each).decode()}" for each in some]
    return printable_json("\n".join(parts))


def _told(value: object) -> object:
    """A struct without its defaults."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        told = {field.name: getattr(value, field.name) for field in fields}
        defaults = {field.name: field.default for field in fields}
        kept = {name: one for name, one in told.items() if one != defaults[name]}
        kind = value.__struct_config__.tag
        return {**({"kind": kind} if kind else {}), **{n: _told(one) for n, one in kept.items()}}
    if isinstance(value, tuple):
        return [_told(each) for each in value]
    return msgspec.to_builtins(value)
