"""Requests to an API server, and its responses. The server is the embedded cluster or a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, Required, TypedDict, Unpack

import msgspec

from .decode import decode_object
from .event_record import EventRecord
from .kinds import Kind
from .shared_parts import decode_pod
from .types import Pod

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "ApiError",
    "DeleteOptions",
    "Item",
    "ListOptions",
    "ListPage",
    "NotLeaderError",
    "PatchOptions",
    "Transport",
    "WatchEvent",
    "WatchOptions",
    "ends_initial_events",
    "tolerate",
    "version_number",
]

#: Media types of patches. The default is a strategic merge patch.
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


class ApiError(Exception):
    """The API server refused a request: a ``Status`` object of kind Failure.

    ``code`` is the HTTP status, ``reason`` upstream's word (``NotFound``, ``Conflict``, ``Invalid``, ``Expired``, …).
    The text of the exception is the Status message. ``continue_token`` is the token with which an expired list may go
    on, in the present state, if the server gives one. ``details`` are written out if they are empty, but not if they
    are None.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self._has_details = details is not None
        self.continue_token = continue_token

    @classmethod
    def not_found(cls, kind: Kind, name: str) -> ApiError:
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        return cls(404, "NotFound", f'{kind.group_resource} "{name}" not found', details)

    @classmethod
    def already_exists(cls, kind: Kind, name: str) -> ApiError:
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        return cls(409, "AlreadyExists", f'{kind.group_resource} "{name}" already exists', details)

    @classmethod
    def conflict(cls, kind: Kind, name: str, why: str) -> ApiError:
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        return cls(409, "Conflict", f'Operation cannot be fulfilled on {kind.group_resource} "{name}": {why}', details)

    @classmethod
    def invalid(cls, kind: Kind, name: str, causes: Sequence[tuple[str, str, str]]) -> ApiError:
        """Return a 422. Each cause is (field path, reason such as FieldValueInvalid, message)."""
        texts = [f"{path}: {message}" for path, _, message in causes]
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        details = {
            "name": name,
            "group": kind.group,
            "kind": kind.kind,
            "causes": [{"reason": reason, "message": message, "field": path} for path, reason, message in causes],
        }
        qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        return cls(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)

    @classmethod
    def bad_request(cls, message: str) -> ApiError:
        return cls(400, "BadRequest", message)

    @classmethod
    def expired(cls, message: str, *, continue_token: str = "") -> ApiError:
        """Return a 410: the requested resource version is older than the history that is kept."""
        return cls(410, "Expired", message, continue_token=continue_token)

    @classmethod
    def too_new(cls, version: int, current: int) -> ApiError:
        """Return a 504: the requested resource version is newer than what the server has seen so far."""
        words = "Too large resource version"
        causes = [{"reason": "ResourceVersionTooLarge", "message": words}]
        message = f"Timeout: {words}: {version}, current: {current}"
        return cls(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})

    def to_status(self) -> dict[str, Any]:
        """Return the ``Status`` object as plain data, its members in the order in which Go writes them."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details or self._has_details:
            status["details"] = {key: value for key, value in self.details.items() if value != ""}
        status["code"] = self.code
        return status


class NotLeaderError(ConnectionAbortedError):
    """A write was refused because this process does not hold the lease."""

    def __init__(self) -> None:
        super().__init__("this process does not hold the lease: nothing may be written")


@contextmanager
def tolerate(*expected: int | str) -> Iterator[None]:
    """Go on after a refusal with one of these codes or reasons."""
    try:
        yield
    except ApiError as error:
        if error.code not in expected and error.reason not in expected:
            raise


#: Most digits of a number of 64 bits.
_VERSION_DIGITS: Final = 20


def version_number(text: str | None) -> int:
    """Return a resource version as a number; 0 if it is not a number, as a server may send anything."""
    return int(text) if text and len(text) <= _VERSION_DIGITS and text.isascii() and text.isdigit() else 0


class Item:
    """One version of one object: its bytes, the few fields that everyone reads, and a shared typed view.

    ``raw`` is the JSON of the whole object, unknown fields included. An item never changes; an update makes a new one.
    ``typed`` decodes on first use, so that all readers in the process share one decoded object.
    """

    __slots__ = ("_key", "_typed", "kind", "name", "namespace", "raw", "resource_version", "uid")

    def __init__(self, kind: Kind, raw: bytes, namespace: str, name: str, uid: str, resource_version: int) -> None:
        self.kind = kind
        self.raw = raw
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.resource_version = resource_version
        self._key = ""
        self._typed: Any = None

    @property
    def key(self) -> str:
        """Key of the object: ``namespace/name``, or the name of a cluster-scoped object.

        The text is made once, because all indexes refer to it.
        """
        if not self._key:
            self._key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return self._key

    @property
    def size(self) -> int:
        """Approximate number of bytes of ``raw``, without making it."""
        return len(self.raw)

    @property
    def typed(self) -> Any:
        """The object as ``kind.type``; plain data if the kind has no type. Shared: never change it."""
        if self._typed is None:
            type_ = self.kind.type
            if type_ is Pod:
                self._typed = decode_pod(self.raw, self.namespace, self.name, self.uid)
            else:
                self._typed = self.data() if type_ is None else decode_object(self.raw, type_)
        return self._typed

    def forget(self) -> None:
        """Drop the typed view of a version that is rarely read again. A later read builds an equal view."""
        self._typed = None

    def data(self) -> dict[str, Any]:
        """Return the object as plain data, newly decoded, which the caller may change."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded

    def __repr__(self) -> str:
        return f"<Item {self.kind} {self.key} rv {self.resource_version}>"


class WatchEvent(NamedTuple):
    """One line of a watch. ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (whose item has only a version)."""

    type: str
    item: Item


def ends_initial_events(event: WatchEvent) -> bool:
    """True if this is the bookmark after the initial events of a watch."""
    if event.type != "BOOKMARK":
        return False
    annotations = (event.item.data().get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get("k8s.io/initial-events-end") == "true")


@dataclass(frozen=True, slots=True)
class ListPage:
    """Page of a list. It is the last page if ``continue_token`` is empty."""

    items: list[Item] = field(default_factory=list)
    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None


class ListOptions(TypedDict, total=False):
    """Selection of the objects that a list shows. Selectors are in their string form.

    ``limit`` is the length of a page, 0 for all at once. ``continue_token``, from the previous page, asks for the next
    page.
    """

    label_selector: str
    field_selector: str
    limit: int
    continue_token: str
    resource_version: str


class WatchOptions(TypedDict, total=False):
    """Selection of the changes that a watch shows: after ``resource_version``, for at most ``timeout_seconds``.

    With ``send_initial_events`` the present state comes first, as additions. It is not older than ``resource_version``.
    A bookmark for which :func:`ends_initial_events` is true follows.
    """

    resource_version: Required[str]
    send_initial_events: bool
    label_selector: str
    field_selector: str
    timeout_seconds: float | None


class PatchOptions(TypedDict, total=False):
    """Format of a patch (default: a strategic merge patch), and the subresource that it changes."""

    patch_type: str
    subresource: str


class DeleteOptions(TypedDict, total=False):
    """Options of a deletion. ``uid`` is a precondition; ``grace_period_seconds`` replaces the object's own.

    An empty ``propagation_policy`` stands for the default of the kind.
    """

    uid: str
    grace_period_seconds: int | None
    propagation_policy: str


class Transport(Protocol):
    """Requests to an API server. Every call raises :class:`ApiError` if the server refuses.

    Objects are sent as plain data (dicts) in wire names. This is the only place that describes the calls.
    """

    @property
    def at_once(self) -> bool:
        """True if a write that is made now has nothing to wait for; see :func:`kubesched.base.at_once.begin`."""
        ...

    async def list(self, kind: Kind, namespace: str = "", **options: Unpack[ListOptions]) -> ListPage:
        """Return one page of objects. An empty namespace means all namespaces."""
        ...

    def watch(
        self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]
    ) -> AsyncIterator[Sequence[WatchEvent]]:
        """Yield changes after a version, in batches as they come. Raises 410 if the version is too old.

        Ends quietly after ``timeout_seconds`` or when the server closes the stream.
        """
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Item:
        """Return one object. Raises 404 if there is none."""
        ...

    async def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Item:
        """Add an object. Raises 409 if its name is taken."""
        ...

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Mapping[str, Any], *, subresource: str = ""
    ) -> Item:
        """Replace an object or a subresource. Raises 409 if ``obj`` has another version than the current one."""
        ...

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Any, **options: Unpack[PatchOptions]) -> Item:
        """Change an object or a subresource by a patch."""
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object, or begin to."""
        ...

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """POST the pod's binding subresource. Raises 409 if the pod is bound already, or has another UID."""
        ...

    def record(self, event: EventRecord) -> bool:
        """Keep an event as recorded, at once. Return False, and do nothing, if it has to be created as an object."""
        ...

    async def evict(self, namespace: str, name: str, *, grace_period_seconds: int | None = None) -> None:
        """POST the pod's eviction subresource. Raises 429 if a disruption budget forbids it."""
        ...
