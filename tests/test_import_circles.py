"""Modules of one package do not import one another in a circle, not even for type checking only."""

from __future__ import annotations

from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import kubesched

PACKAGES = sorted(init.parent.name for init in Path(kubesched.__file__).parent.glob("*/__init__.py"))


def circle_in(imports: Mapping[str, Set[str]]) -> list[str]:
    """Modules that import one another in a circle, the first one repeated at the end; empty when there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("kubesched", exclude_type_checking_imports=False, cache_dir=None)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_modules_of_a_package_form_no_circle(graph: grimp.ImportGraph, package: str) -> None:
    root = f"kubesched.{package}"
    modules = graph.find_descendants(root) | {root}
    assert circle_in({module: graph.find_modules_directly_imported_by(module) & modules for module in modules}) == []


def test_a_circle_is_found_and_named() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    circle = circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert set(circle) == {"a", "b", "c"}
    assert circle[0] == circle[-1]
