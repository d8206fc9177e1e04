"""Lines for objects in a file of decisions: an object as a whole when it comes, and then what changes.

Secrets are left out, and so is the annotation in which kubectl keeps the applied manifest, which may hold any value.
Other objects have the fields that the scheduler decodes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubesched.api.types import Node, Pod, PodSpec

from .schema import NO_STATUS, Change, Gone, Put

__all__ = ["LEFT_OUT", "SPECS", "ObjectLines", "key_of"]

#: Kinds that are never recorded, by plural.
LEFT_OUT: Final = frozenset({"secrets"})
#: Most specs that lines refer to by number; numbers are used again.
SPECS: Final = 4096

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_encode: Final = msgspec.json.Encoder().encode


def key_of(obj: Any) -> str:
    """Return an object's ``namespace/name``, or its name."""
    if isinstance(obj, dict):
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    else:
        namespace, name = obj.metadata.namespace, obj.metadata.name
    return f"{namespace}/{name}" if namespace else str(name)


class ObjectLines:
    """Maker of the lines of one file."""

    def __init__(self) -> None:
        #: Identity of a spec to its number and the spec, which is held so that the identity stays its own.
        self._specs: dict[int, tuple[int, PodSpec]] = {}
        self._by_number: dict[int, int] = {}
        self._last = 0

    def put(self, plural: str, old: Any, new: Any) -> bytes:
        """Return the line for a new object (``old`` None), or for a change of a known one."""
        if old is not None and isinstance(new, Pod | Node) and type(old) is type(new):
            line = self._change(plural, old, new)
            if line is not None:
                return line
        new = _without_applied(new)
        number = 0
        if isinstance(new, Pod) and not new.spec.node_name:
            number, known = self._number(new.spec)
            if known:
                new = replace(new, spec=PodSpec())
        return _encode(Put(plural, msgspec.Raw(_encode(new)), number))

    @staticmethod
    def gone(plural: str, obj: Any) -> bytes:
        """Return the line for a deletion."""
        return _encode(Gone(plural, key_of(obj)))

    @staticmethod
    def _change(plural: str, old: Pod | Node, new: Pod | Node) -> bytes | None:
        """Return a short line if at most version, node and status changed."""
        version = new.metadata.resource_version
        if replace(old.metadata, resource_version=version) != new.metadata:
            return None
        node: str | None = None
        if old.spec != new.spec:
            if not isinstance(old, Pod) or not isinstance(new, Pod):
                return None
            node = new.spec.node_name
            if replace(old.spec, node_name=node) != new.spec:
                return None
        status = NO_STATUS if old.status == new.status else msgspec.Raw(_encode(new.status))
        return _encode(Change(plural, key_of(new), version, node, status))

    def _number(self, spec: PodSpec) -> tuple[int, bool]:
        """Return the number of a spec, and whether an earlier line has it."""
        known = self._specs.get(id(spec))
        if known is not None:
            return known[0], True
        number = self._last = self._last % SPECS + 1
        before = self._by_number.get(number)
        if before is not None:
            del self._specs[before]
        self._specs[id(spec)] = number, spec
        self._by_number[number] = id(spec)
        return number, False


def _without_applied(obj: Any) -> Any:
    if isinstance(obj, dict):
        annotations = obj["metadata"].get("annotations") or {}
        if _APPLIED not in annotations:
            return obj
        kept = {name: value for name, value in annotations.items() if name != _APPLIED}
        return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}
    annotations = obj.metadata.annotations
    if not annotations or _APPLIED not in annotations:
        return obj
    kept = {name: value for name, value in annotations.items() if name != _APPLIED}
    return replace(obj, metadata=replace(obj.metadata, annotations=kept))
