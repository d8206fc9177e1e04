"""Objects of a file of decisions, made again from its lines and delivered to the informers of a replay.

Caller: :mod:`.replay`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubesched.api.decode import DecodeError, decode_object
from kubesched.api.groups import PodGroup
from kubesched.api.kinds import KINDS
from kubesched.api.types import Node, NodeStatus, Pod, PodSpec, PodStatus
from kubesched.explain.records.lines import SPECS, key_of
from kubesched.explain.records.schema import NO_STATUS, Change, Gone, Put

from .port import ReplayPort

__all__ = ["BadLineError", "Objects"]

#: Type of the objects by the name of their informer. Groups of other projects are recorded as the scheduler reads them.
_TYPES: Final = {
    kind.group_resource if kind.custom else kind.plural: PodGroup if kind.custom else kind.type
    for kind in KINDS
    if kind.group != "events.k8s.io"
}
_UNCHANGED: Final = bytes(NO_STATUS)


class BadLineError(ValueError):
    """Line that cannot belong where it is."""


class Objects:
    """Objects as of the last line that was read."""

    def __init__(self, port: ReplayPort) -> None:
        self._port = port
        self._specs: dict[int, PodSpec] = {}

    def put(self, line: Put) -> None:
        """Take an object as a whole.

        Raises:
            BadLineError: if it cannot be read.
        """
        obj = self._decoded(line)
        if isinstance(obj, Pod) and line.spec:
            if not 1 <= line.spec <= SPECS:
                raise BadLineError(f"spec: {line.spec} is not between 1 and {SPECS}")
            if obj.spec == PodSpec():
                known = self._specs.get(line.spec)
                if known is None:
                    raise BadLineError(f"spec: no earlier line has the spec {line.spec}")
                obj = replace(obj, spec=known)
            else:
                self._specs[line.spec] = obj.spec
        informer = self._port.informers.get(line.kind)
        if informer is not None:
            informer.put(key_of(obj), obj)

    @staticmethod
    def _decoded(line: Put) -> Any:
        type_ = _TYPES.get(line.kind)
        try:
            if type_ is None:
                obj = msgspec.json.decode(line.object, type=dict[str, Any])
                if not isinstance(obj.get("metadata"), dict) or not isinstance(obj["metadata"].get("name"), str):
                    raise BadLineError("object: needs metadata with a name")
                return obj
            return decode_object(bytes(line.object), type_)
        except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadLineError(f"object: {error}") from None

    def change(self, line: Change) -> None:
        """Take another version of an object.

        Raises:
            BadLineError: if the object is not there or its status cannot be read.
        """
        informer = self._port.informers.get(line.kind)
        if informer is None:
            return
        old = informer.get_by_key(line.key)
        if not isinstance(old, Pod | Node):
            raise BadLineError(f"key: there is no {line.kind} {line.key}")
        new: Pod | Node = replace(old, metadata=replace(old.metadata, resource_version=line.version))
        if line.node is not None and isinstance(new, Pod):
            new = new.on_node(line.node)
        if bytes(line.status) != _UNCHANGED:
            try:
                status: Any = decode_object(bytes(line.status), PodStatus if isinstance(new, Pod) else NodeStatus)
            except (DecodeError, RecursionError) as error:
                raise BadLineError(f"status: {error}") from None
            new = replace(new, status=status)
        informer.put(line.key, new)

    def take(self, line: Put | Change | Gone) -> None:
        """Take a line about an object.

        Raises:
            BadLineError: if it cannot belong there.
        """
        match line:
            case Put():
                self.put(line)
            case Change():
                self.change(line)
            case Gone():
                self.gone(line)

    def gone(self, line: Gone) -> None:
        """Take a deletion."""
        informer = self._port.informers.get(line.kind)
        if informer is not None:
            informer.remove(line.key)
