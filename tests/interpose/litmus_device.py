"""The device of `test_interpose_litmus`: it has imported what programs import at their first use.

Without that every run of an optimizer would import a second's worth of torch again.
"""

from __future__ import annotations

from importlib import import_module

from racegate.interpose import child

USED_FIRST = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "triton.language")

if __name__ == "__main__":
    for name in USED_FIRST:
        import_module(name)
    child.main()
