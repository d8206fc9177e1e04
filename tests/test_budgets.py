"""Budgets for complexity: the length of modules and functions."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
MOST_IN_A_MODULE = 500
MOST_IN_A_FUNCTION = 60


def test_no_module_is_longer_than_its_budget() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES.rglob("*.py")}
    assert len(lengths) > 500
    assert {str(path): length for path, length in lengths.items() if length > MOST_IN_A_MODULE} == {}


def test_no_function_is_longer_than_its_budget() -> None:
    """A signature and a docstring do not count: they belong to the documentation."""
    too_long = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
                continue
            first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
            length = node.end_lineno - first.lineno + 1
            if length > MOST_IN_A_FUNCTION:
                too_long[f"{path}:{node.name}"] = length
    assert too_long == {}
