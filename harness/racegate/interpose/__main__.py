"""`python -m racegate.interpose SCRIPT [ARGS]` is `racegate torch run SCRIPT [ARGS]`."""

from __future__ import annotations

import sys

from racegate.cli.start import main

if __name__ == "__main__":
    sys.argv[1:1] = ["torch", "run"]
    main()
