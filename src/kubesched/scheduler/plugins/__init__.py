"""In-tree plugins, one module each. :func:`in_tree_registry` gives them to the other packages."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..config.intree import IN_TREE
from ..framework.registry import Registry
from .pod_group_migration import PodGroupMigration

__all__ = ["in_tree_registry"]


def in_tree_registry() -> Registry:
    """Return a fresh registry with every in-tree plugin."""
    return _in_tree().copy()


@cache
def _in_tree() -> Registry:
    """Import the classes once. The tests check them, and not every process again, which takes 12 ms."""
    registry = Registry()
    for row in IN_TREE.values():
        if row.module:
            registry.register(getattr(import_module(f".{row.module}", __name__), row.name), checked=True)
    registry.register(PodGroupMigration, checked=True)  # of our own, so in no default profile
    return registry
