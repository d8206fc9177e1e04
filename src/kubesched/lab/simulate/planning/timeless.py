"""Cluster without times: what a planner's question is about does not end, and everything is there from the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubesched.cluster.files import Manifest, Manifests

__all__ = ["timeless"]

_IN_TIME: Final = frozenset(("kubesched.io/arrival", "kubesched.io/duration", "kubesched.io/exit"))


def timeless(given: Manifests) -> Manifests:
    """Return the objects without annotations of arrival and duration."""
    return Manifests([_without(item) for item in given.objects], given.warnings, given.problems)


def _without(item: Manifest) -> Manifest:
    data = item.data
    spec = data.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if _has_time(data):
        data = {**data, "metadata": _stripped(data["metadata"])}
    if isinstance(template, Mapping) and _has_time(template):
        data = {**data, "spec": {**data["spec"], "template": {**template, "metadata": _stripped(template["metadata"])}}}
    return item if data is item.data else Manifest(item.kind, data, item.source)


def _has_time(data: Mapping[str, Any]) -> bool:
    metadata = data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and not _IN_TIME.isdisjoint(annotations)


def _stripped(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in metadata["annotations"].items() if key not in _IN_TIME}
    return {**metadata, "annotations": kept}
