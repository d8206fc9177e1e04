"""Roles that every cluster has and that programs depend on. They are created if the server checks roles.

An object that exists, from a saved cluster or a manifest, stays as it is. Caller: :mod:`.access`.
"""

from __future__ import annotations

from importlib.resources import files

from kubesched.api.kinds import kind_by_plural
from kubesched.api.wire import tolerate
from kubesched.api.yamltext import parse_documents

from ..store import Store

__all__ = ["create_bootstrap_roles"]


def create_bootstrap_roles(store: Store) -> None:
    """Create the missing objects of ``bootstrap_roles.yaml``."""
    text = files(__package__).joinpath("bootstrap_roles.yaml").read_text(encoding="utf-8")
    for document in parse_documents(text):
        data = document.data
        group, _, _ = data["apiVersion"].partition("/")
        kind = kind_by_plural(group, f"{data['kind'].lower()}s")
        assert kind is not None
        with tolerate(409):
            store.create(kind, data["metadata"].get("namespace", ""), data)
