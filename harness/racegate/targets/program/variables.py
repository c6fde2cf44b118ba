"""What a device needs in the environment of a process, asked of the Python that will run there:
`PYTHON -m racegate.targets.program.variables DEVICE` prints as JSON the variables to set.

It runs in the environment of an engine, so it imports nothing that this may lack.
"""

from __future__ import annotations

import json
import os
import sys

from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind
from racegate.targets.program.launch import environment_for


def main(kind: str) -> None:
    """Prints the variables that differ from this process's. Exits with what is missing if the
    device cannot be put under this Python's torch.
    """
    try:
        made = environment_for(find_toolkit(), DeviceKind(kind))
    except BadInput as error:
        raise SystemExit(str(error)) from None
    print(json.dumps({key: value for key, value in made.items() if os.environ.get(key) != value}))


if __name__ == "__main__":
    main(sys.argv[1])
