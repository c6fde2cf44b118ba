"""The limits of an engine on the command line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from racegate.cli.foreign import adapter
from racegate.targets.adapters.process import Limits


class Asked(Exception):
    """An adapter would have been started with these limits."""


def start(command: list[str], *, limits: Limits) -> None:
    raise Asked(limits)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ([], Limits()),
        (["--start-s", "2", "--timeout-s", "3.5"], Limits(start_s=2, timeout_s=3.5)),
        (["--memory-mib", "64", "--address-mib", "65"], Limits(memory_mib=64, address_mib=65)),
    ],
)
def test_limits_arrive_as_they_were_given(
    options: list[str], limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "Adapter", start)
    result = CliRunner().invoke(adapter.app, ["check", *options, "--", "engine", "--start-s", "9"])
    assert isinstance(result.exception, Asked), result.output
    assert result.exception.args == (limits,)


@pytest.mark.parametrize("command", ["check", "run", "gate", "search"])
def test_a_limit_of_nothing_is_bad_input(command: str) -> None:
    result = CliRunner().invoke(adapter.app, [command, "--memory-mib", "0", "x", "y"])
    assert result.exit_code == 2
    assert "--memory-mib" in result.output
