"""Where the command begins.

Importing makes some 80,000 objects and no rubbish, and the collector would walk through all of
them again and again: a fifth of a short command's time. It rests until the command is imported.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Entry point of `racegate`."""
    gc.disable()
    try:
        from racegate.cli.app import main as run_command
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # nothing has begun that could be said

    run_command()
