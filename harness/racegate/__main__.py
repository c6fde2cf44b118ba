"""`python -m racegate` is `racegate`, for whoever has an environment but not its commands."""

from __future__ import annotations

from racegate.cli.start import main

if __name__ == "__main__":
    main()
