"""Counter-based draws that fill in what a scenario file leaves open (prompts, accept counts,
seeds).
"""

from __future__ import annotations

import hashlib


def draw(seed: int, label: str, index: int) -> int:
    """A 32-bit number that depends on nothing but its arguments, on every machine and version."""
    text = f"{seed}:{label}:{index}".encode()
    return int.from_bytes(hashlib.blake2s(text, digest_size=4).digest(), "little")
