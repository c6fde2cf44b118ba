"""What can be wrong with a program or with this machine before anything can be judged.

Exit codes are those of all commands; what is not modelled is NOT_MODELLED, which is 3.
"""

from __future__ import annotations

from racegate.history.exit_code import INTERRUPTED, ExitCode
from racegate.order.native.errors import BadInput

__all__ = ["INTERRUPTED", "BadInput", "ExitCode"]
