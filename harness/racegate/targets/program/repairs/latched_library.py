"""Lines that are put into modules of a library when they are imported, in memory. It is written
into exported tests as it stands here, behind the latch.
"""

import ast
import builtins
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType

# Of each module: statements, whether a line goes behind or before each, and the line.
LATCHED: dict[str, list[tuple[str, bool, str]]] = {}


def with_lines(text: str, lines: Sequence[tuple[str, bool, str]]) -> str:
    """The text with each line beside the one statement that reads so, however it is laid out."""
    told = text.split("\n")
    for statement, is_behind, line in lines:
        nodes = [
            node for node in ast.walk(ast.parse("\n".join(told))) if isinstance(node, ast.stmt)
        ]
        found = [node for node in nodes if ast.unparse(node) == statement]
        assert len(found) == 1, f"this release has {len(found)} statements {statement!r}"
        at = (found[0].end_lineno or 0) if is_behind else found[0].lineno - 1
        told.insert(at, " " * found[0].col_offset + line)
    return "\n".join(told)


def known(latch: object) -> object:
    """The latch, which the lines in the library know from now on."""
    builtins.latch = latch  # type: ignore[attr-defined]
    return latch


class _LatchedLoader(SourceFileLoader):
    """Compiles a module with its lines."""

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_source(fullname) or ""
        return compile(with_lines(text, LATCHED[fullname]), self.path, "exec", dont_inherit=True)


class _LatchedFinder:
    """Finds the modules that get lines, before Python does."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _: object = None
    ) -> ModuleSpec | None:
        """As Python's own, with the loader for lines."""
        spec = PathFinder.find_spec(name, path) if name in LATCHED else None
        if spec is not None and spec.origin:
            spec.loader = _LatchedLoader(name, spec.origin)
        return spec


sys.meta_path.insert(0, _LatchedFinder)
