"""Field selectors: the fields of each kind, and the compiled form that lists and watches use.

Caller: ``table`` for every listed object and every watched change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from sys import intern
from typing import Any, Final

import msgspec

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import NODES, PODS, Kind
from kubesched.api.selectors import MOST_REQUIREMENTS, Selector, SelectorError, parse_selector_text
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, ListOptions, WatchOptions

from ..schema import Stored

__all__ = ["Filter", "fields_of"]

#: Patterns of the terms of a selector (separated by commas), of the parts of a term, and of the characters of a value,
#: escaped or not.
_TERMS: Final = re.compile(r"(?:\\.|[^,\\]|\\$)+", re.DOTALL)
_TERM: Final = re.compile(r"(.*?)(!=|==?)(.*)", re.DOTALL)
_LETTERS: Final = re.compile(r"(\\.?)|([^\\])", re.DOTALL)
_ESCAPES: Final = ("\\\\", "\\,", "\\=")
_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event_fields(item: Stored) -> dict[str, str]:
    """Return the fields of a stored event, by their names in both groups."""
    data = item.data()
    fields = {name: data.get(name) or "" for name in ("reason", "type", "reportingComponent")}
    component = fields["reportingController"] = fields["reportingComponent"]
    fields["source"] = (data.get("source") or {}).get("component") or component
    regarding = data.get("involvedObject") or {}
    for name in _REFERENCE:
        fields[f"involvedObject.{name}"] = fields[f"regarding.{name}"] = regarding.get(name) or ""
    return fields


def _path_fields(*paths: str, absent: str = "", **renamed: str) -> Callable[[Stored], dict[str, str]]:
    """Return a reader of dotted paths.

    A missing value reads as ``absent``, or as the text after ``=`` in the path. ``renamed``: name of a field
    ``status.NAME`` to its path below the status.
    """
    parted = [path.partition("=") for path in paths]
    rows = [(path, path.split("."), default or absent) for path, _, default in parted]
    rows += [(f"status.{name}", ["status", *path.split(".")], absent) for name, path in renamed.items()]

    def read(item: Stored) -> dict[str, str]:
        data, fields = item.data(), {}
        for name, path, default in rows:
            value: Any = data
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
            text = default if value is None else str(value)
            # Tens of thousands of objects share a few values, so each text is kept once.
            fields[name] = intern(text.lower() if isinstance(value, bool) else text)
        return fields

    return read


_READERS: Final[dict[str, Callable[[Stored], dict[str, str]]]] = {
    PODS.group_resource: _path_fields(
        "spec.nodeName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "status.phase",
        "status.nominatedNodeName",
        "status.podIP",
        "spec.hostNetwork=false",
    ),
    NODES.group_resource: _path_fields("spec.unschedulable=false"),
    "events": _event_fields,
    "events.events.k8s.io": _event_fields,
    "namespaces": _path_fields("status.phase"),
    "secrets": _path_fields("type"),
    "services": _path_fields("spec.clusterIP", "spec.type"),
    "replicasets.apps": _path_fields("status.replicas", absent="0"),
    "replicationcontrollers": _path_fields("status.replicas", absent="0"),
    "jobs.batch": _path_fields(absent="0", successful="succeeded"),
    "certificatesigningrequests.certificates.k8s.io": _path_fields("spec.signerName"),
    "resourceslices.resource.k8s.io": _path_fields("spec.nodeName", "spec.driver"),
}


def fields_of(item: Stored) -> dict[str, str]:
    """Return the selectable fields of an object, read once."""
    fields = item.fields
    if fields is None:
        reader = _READERS.get(item.kind.group_resource)
        fields = reader(item) if reader is not None else {}
        fields["metadata.name"] = item.name
        fields["metadata.namespace"] = item.namespace
        item.fields = fields
    return fields


#: Fields that watches of pods often select by, read from the typed view that informers share.
_OF_TYPED_POD: Final[dict[str, Callable[[Pod], str]]] = {
    "metadata.name": attrgetter("metadata.name"),
    "metadata.namespace": attrgetter("metadata.namespace"),
    "spec.nodeName": attrgetter("spec.node_name"),
    "spec.schedulerName": attrgetter("spec.scheduler_name"),
    "status.phase": attrgetter("status.phase"),
    "status.nominatedNodeName": attrgetter("status.nominated_node_name"),
}


class Filter:
    """Filter of a list or watch by namespace, labels and fields. Objects must satisfy all of them.

    Field terms are ``a=b``, ``a==b`` and ``a!=b``, separated by commas; a backslash escapes ``,``, ``=`` and ``\\``.

    Raises:
        ApiError: 400, for a selector that cannot be parsed or a field the kind does not offer.
    """

    __slots__ = ("_fields", "_labels", "_typed", "is_trivial", "kind", "namespace", "selects")

    def __init__(self, kind: Kind, namespace: str, options: ListOptions | WatchOptions) -> None:
        self.kind = kind
        self.namespace = namespace if kind.namespaced else ""
        self._labels: Selector | None = None
        if text := options.get("label_selector"):
            try:
                self._labels = parse_selector_text(text)
            except SelectorError as error:
                raise ApiError.bad_request(f"unable to parse label selector: {error}") from None
        self._fields = fields = _field_terms(kind, options.get("field_selector", ""))
        typed = kind is PODS and all(name in _OF_TYPED_POD for name, _, _ in fields)
        #: Terms about fields, if all can be read from the typed view.
        self._typed = [(_OF_TYPED_POD[name], equal, value) for name, equal, value in fields] if typed else []
        #: True if labels or fields are selected, not merely a namespace.
        self.selects = self._labels is not None or bool(fields)
        #: True when every object passes.
        self.is_trivial = not (self.namespace or self.selects)

    def matches(self, item: Stored) -> bool:
        if self.namespace and item.namespace != self.namespace:
            return False
        if self._labels is not None and not self._labels.matches(item.labels):
            return False
        if self._typed:
            try:
                pod = item.typed
            except (DecodeError, msgspec.DecodeError):
                pass  # the plain fields below may be readable
            else:
                for read, equal, value in self._typed:  # noqa: SIM110 - for each change of a pod, and faster
                    if (read(pod) == value) is not equal:
                        return False
                return True
        if self._fields:
            fields = fields_of(item)
            return all((fields[name] == value) is equal for name, equal, value in self._fields)
        return True


def _field_terms(kind: Kind, text: str) -> list[tuple[str, bool, str]]:
    """Return the terms of a selector: name, True for equality (False for inequality), and value."""
    terms: list[tuple[str, bool, str]] = []
    known = fields_of(Stored(kind, b"{}", {"name": "", "uid": ""}, 0)) if text else {}  # of an empty object
    for term in filter(None, _TERMS.findall(text)):
        if len(terms) == MOST_REQUIREMENTS:
            raise ApiError.bad_request(f"invalid field selector: more than {MOST_REQUIREMENTS} terms")
        found = _TERM.fullmatch(term)
        if found is None:
            why = f"can't understand {term!r}; write field=value"
            raise ApiError.bad_request(f"invalid field selector: {text!r}: {why}")
        name, equal, value = found[1].strip(), found[2] != "!=", _unescape(found[3], text)
        if name not in known:
            raise ApiError.bad_request(_not_selectable(kind, name))
        terms.append((name, equal, value))
    return terms


def _not_selectable(kind: Kind, name: str) -> str:
    """Return upstream's message. It depends on whether the kind has selectable fields of its own."""
    if kind.group_resource == "jobs.batch":
        return f'field label "{name}" not supported for batchv1.Job'
    if kind.custom or kind.group_resource in _READERS:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _unescape(value: str, text: str) -> str:
    for escaped, plain in _LETTERS.findall(value):
        if escaped not in ("", *_ESCAPES):
            raise ApiError.bad_request(f"invalid field selector: {text!r}: invalid escape sequence in {value!r}")
        if plain == "=":
            raise ApiError.bad_request(f"invalid field selector: {text!r}: unescaped '=' in value {value!r}")
    return "".join(escaped[1:] or plain for escaped, plain in _LETTERS.findall(value))
