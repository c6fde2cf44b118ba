"""Runs one litmus program as a script: `racegate torch run litmus_one.py THEME NAME`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from racegate.interpose import observe


def bind(registry: ModuleType) -> None:
    """What a program hands to its `observe` goes to racegate's."""
    registry.observe.bound = lambda key, value: observe(key, value)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    theme, name = sys.argv[1:3]
    importlib.import_module(f"litmus.{theme}")
    registry = importlib.import_module("litmus.registry")
    bind(registry)
    registry.REGISTRY.programs[name].run()


if __name__ == "__main__":
    main()
