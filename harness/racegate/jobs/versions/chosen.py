"""Which versions a history has: from a range `A..B` of what the package index offers, or a list."""

from __future__ import annotations

import subprocess
import sys

from racegate.interpose.errors import BadInput

BETWEEN = ".."


def available(package: str) -> tuple[str, ...]:
    """The versions of a package that pip would install here, the oldest first, without those that
    are no releases yet. pip's own settings say where it looks.

    Raises:
        BadInput: pip finds no such package, with what it said.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    command += ["--disable-pip-version-check", "--only-binary", ":all:"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        heading, found, rest = line.partition("Available versions:")
        if found and not heading:
            return tuple(reversed([version.strip() for version in rest.split(",")]))
    said = done.stderr.strip().splitlines()
    raise BadInput(f"pip finds no versions of {package}: {said[-1] if said else 'it said nothing'}")


def chosen(text: str, package: str) -> tuple[str, ...]:
    """The versions that an option asks for, in their order.

    Args:
        text: `A..B` for all from A to B that are available, where either may be missing; else
            versions with commas between them, which are taken as they are.
        package: what pip calls it.

    Raises:
        BadInput: the range names a version that is not there, or none is in it.
    """
    if BETWEEN not in text:
        return tuple(filter(None, (part.strip() for part in text.split(","))))
    first, _, last = (part.strip() for part in text.partition(BETWEEN))
    there = available(package)
    for end in filter(None, (first, last)):
        if end not in there:
            raise BadInput(f"{package} has no version {end} here; it has {', '.join(there)}")
    begin = there.index(first) if first else 0
    end_at = there.index(last) + 1 if last else len(there)
    if begin >= end_at:
        raise BadInput(f"{text}: {first} is later than {last}")
    return there[begin:end_at]
