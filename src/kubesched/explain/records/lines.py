"""Lines for objects in a file of decisions: an object as a whole when it comes, and then what changes.

Secrets are left out, and so is the annotation in which kubectl keeps the applied manifest, which may hold any value.
Other objects have the fields that the scheduler decodes. A change without consequences for decisions has no line.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from kubesched.api.types import Node, NodeStatus, Pod, PodSpec, PodStatus

from .schema import NO_STATUS, Change, Gone, Put

__all__ = ["LEFT_OUT", "SPECS", "ObjectLines", "key_of"]

#: Kinds that are never recorded, by plural.
LEFT_OUT: Final = frozenset({"secrets"})
#: Most specs that lines refer to by number; numbers are used again.
SPECS: Final = 4096

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TYPES: Final = (Pod, Node)
_NO_SPEC: Final = PodSpec()
#: Conditions of pods that the scheduler reads.
_READ: Final = frozenset({"DisruptionTarget"})


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

    def put(self, plural: str, old: Any, new: Any) -> Put | Change | None:
        """Return the line for a new object (``old`` None), or for a change of a known one if it has one."""
        if old is not None and type(new) in _TYPES and type(old) is type(new):
            same, change = self._change(plural, old, new)
            if same:
                return change
        new = _without_applied(new)
        number = 0
        if isinstance(new, Pod) and not new.spec.node_name:
            number, known = self._number(new.spec)
            if known:
                new = replace(new, spec=_NO_SPEC)
        return Put(plural, _raw(new), number)

    @staticmethod
    def whole(plural: str, obj: Any) -> Put:
        """Return the line for an object that refers to no other line."""
        return Put(plural, _raw(_without_applied(obj)))

    @staticmethod
    def gone(plural: str, obj: Any) -> Gone:
        """Return the line for a deletion."""
        return Gone(plural, key_of(obj))

    @staticmethod
    def _change(plural: str, old: Pod | Node, new: Pod | Node) -> tuple[bool, Change | None]:
        """Return True if at most version, node and status changed, and the line for that, if any."""
        version = new.metadata.resource_version
        if replace(old.metadata, resource_version=version) != new.metadata:
            return False, None
        node: str | None = None
        if old.spec is not new.spec:
            spec = old.spec
            if isinstance(spec, PodSpec) and isinstance(new.spec, PodSpec) and spec.node_name != new.spec.node_name:
                node = new.spec.node_name
                spec = replace(spec, node_name=node)
            if spec != new.spec:
                return False, None
        status = NO_STATUS
        if old.status is not new.status:
            before, after = _read(old.status), _read(new.status)
            if before != after:
                status = _raw(after)
        if node is None and status is NO_STATUS:
            return True, None
        return True, Change(plural, key_of(new), version, node, status)

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


def _raw(part: Any) -> msgspec.Raw:
    """Return an object in the place of its JSON: it is encoded together with its line."""
    return cast("msgspec.Raw", part)


def _read(status: PodStatus | NodeStatus) -> PodStatus | NodeStatus:
    """Return a status without the conditions of pods that nobody reads, such as Ready."""
    if isinstance(status, PodStatus) and status.conditions:
        return replace(status, conditions=tuple([each for each in status.conditions if each.type in _READ]))
    return status


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
