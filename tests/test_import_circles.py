"""Modules of one package do not import one another in a circle, not even for type checking only.

The sub-packages of the embedded cluster are imported through their one public module.
"""

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


def past_the_public_module(imports: Mapping[str, Set[str]], package: str) -> list[str]:
    """Imports of a private module of a sub-package of ``package`` by a module outside that sub-package."""
    found = []
    for importer, imported in imports.items():
        for module in imported:
            public = ".".join(module.split(".")[: package.count(".") + 2])
            inside = importer == public or importer.startswith(f"{public}.")
            if module.startswith(f"{package}.") and module != public and not inside:
                found.append(f"{importer} -> {module}")
    return sorted(found)


def test_sub_packages_of_the_cluster_are_imported_through_their_public_module(graph: grimp.ImportGraph) -> None:
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert past_the_public_module(imports, "kubesched.cluster") == []


def test_an_import_past_the_public_module_is_found_and_named() -> None:
    imports = {
        "k.cluster": {"k.cluster.store"},
        "k.cluster.store.a": {"k.cluster.store.b", "k.cluster.http"},
        "k.cluster.http": {"k.cluster.http.server"},
        "k.cluster.http.server": {"k.cluster.store.a"},
        "k.cli": {"k.cluster.store", "k.cluster.storehouse", "k.cluster.http.server", "k.queue.moves"},
    }
    assert past_the_public_module(imports, "k.cluster") == [
        "k.cli -> k.cluster.http.server",
        "k.cluster.http.server -> k.cluster.store.a",
    ]
