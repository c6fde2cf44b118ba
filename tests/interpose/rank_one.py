"""Runs one program of ranks as a script: `racegate torch run --ranks N rank_one.py THEME NAME`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    theme, name = sys.argv[1:3]
    importlib.import_module(f"rank_programs.{theme}")
    registry = importlib.import_module("rank_programs.registry")
    registry.PROGRAMS[name].body(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


if __name__ == "__main__":
    main()
