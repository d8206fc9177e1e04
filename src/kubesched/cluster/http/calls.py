"""Request in parsed form: resource, verb and options. The query is checked as the API server checks it.

A wrong value is 400, a forbidden combination 422, in upstream's words. Made by :mod:`.dispatch` from method, path and
query; handed to the verb modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from kubesched.api.documents import Document
from kubesched.api.kinds import Kind
from kubesched.api.selectors import parse_int64
from kubesched.api.wire import ApiError, Item
from kubesched.base.kept import remembered

from ..store import Store
from .access import Access
from .answers import Accepted, Style, json_answer, style_of
from .bodies import decode_body
from .catalog import Resource
from .rbac import Attributes
from .users import User

__all__ = [
    "Call",
    "Query",
    "Target",
    "attributes_of",
    "invalid_options",
    "not_served",
    "parse_path",
    "shutting_down",
    "unsupported_value",
    "wrong_method",
]

_TRUE: Final = frozenset({"1", "t", "true", "True", "TRUE", "T"})
_FALSE: Final = frozenset({"0", "f", "false", "False", "FALSE", "F", ""})
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_MAX_MANAGER: Final = 128
_AUTHORIZED_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_NAME: Final = "metadata.name="
_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
#: The path /namespaces/x, and subresources of namespaces, name the namespace object itself.
_PATH: Final = re.compile(
    r"/(?:api|apis/(?!core/)(?P<group>[^/]+))/(?P<version>[^/]+)(?P<watch>/watch)?"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/])(?!/(?:status|finalize)/?\Z))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+)(?P<rest>(?:/[^/]+)*))?)?/?"
)


class Target(NamedTuple):
    """Parts of a resource path.

    ``watch`` marks the old ``/watch/`` prefix. ``rest`` is a surplus end, which gets 404.
    """

    namespaced: bool
    group: str
    version: str
    watch: str
    namespace: str
    plural: str
    name: str
    subresource: str
    rest: str


@remembered(1 << 18)
def parse_path(path: str) -> Target | None:
    """Return the parts of a resource path below ``/api`` or ``/apis``; None for any other path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    parts = (unquote(part or "", errors="replace") for part in found.groups())
    return Target(found["namespace"] is not None, *parts)


class Query(dict[str, str]):
    """Parameters of a request. Of a repeated parameter the first value counts."""

    def __init__(self, text: str = "") -> None:
        if not text:
            return
        try:
            pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=256)
        except ValueError as error:
            raise ApiError.bad_request(f"the query cannot be read: {error}") from None
        for key, value in pairs:
            self.setdefault(key, value)

    def text(self, name: str) -> str:
        return self.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean, False when absent. Other texts than true or false are 400. A bare ``watch`` means true."""
        value = self.text(name)
        if value in _TRUE or (not value and name == "watch" and name in self):
            return True
        if value in _FALSE:
            return False
        raise ApiError.bad_request(f'strconv.ParseBool: parsing "{value}": invalid syntax in parameter {name}')

    def number(self, name: str) -> int | None:
        """Return an integer, None when absent. Any other text is 400."""
        value = self.text(name)
        number = parse_int64(value)
        if value and number is None:
            raise ApiError.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax in parameter {name}')
        return number

    # -- options of several verbs; ``options`` names their kind in errors --------------------------------

    def dry_run(self, options: str) -> bool:
        """True for ``dryRun=All``."""
        value = self.text("dryRun")
        if value not in ("", "All"):
            raise invalid_options(options, "dryRun", unsupported_value(value, "All"))
        return bool(value)

    def field_validation(self, options: str) -> str:
        value = self.text("fieldValidation")
        if value not in _VALIDATIONS:
            raise invalid_options(options, "fieldValidation", unsupported_value(value, *_VALIDATIONS))
        return value or "Warn"

    def field_manager(self, options: str) -> str:
        value, why = self.text("fieldManager"), ""
        if len(value) > _MAX_MANAGER:
            why = f"Too long: may not be more than {_MAX_MANAGER} bytes"
        elif not value.isprintable():
            why = f"Invalid value: {value!r}: should only contain printable characters"
        if why:
            raise invalid_options(options, "fieldManager", why)
        return value

    def check_list(self, *, watch: bool) -> None:
        """Refuse options that may not be combined in a list or watch (upstream ``ValidateListOptions``)."""
        match, name = self.text("resourceVersionMatch"), "resourceVersionMatch"
        version, token = self.text("resourceVersion"), self.text("continue")
        if "sendInitialEvents" in self:
            if not watch:
                name, why = "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"
            elif match != "NotOlderThan":
                why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            else:
                return
        elif not match:
            if token and version not in ("", "0"):
                raise ApiError.bad_request("specifying resource version is not allowed when using continue")
            return
        elif watch:
            why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        elif not version:
            why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        elif token:
            why = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        elif match not in ("Exact", "NotOlderThan"):
            why = unsupported_value(match, "", "Exact", "NotOlderThan")
        elif match == "Exact" and version == "0":
            why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        else:
            return
        raise invalid_options("ListOptions", name, why)


def attributes_of(method: str, path: str, query_text: str) -> Attributes:
    """Return the permissions that a request needs, from the parser of path and query that answers use as well.

    Raises:
        ApiError: 400 for a query that cannot be read.
    """
    target = parse_path(path)
    if target is None:
        return Attributes(method.lower(), path=path)
    query, name, verb = Query(query_text), target.name, _AUTHORIZED_VERBS.get(method, "get")
    if method == "GET" and (target.watch or query.flag("watch")):
        verb = "watch"
    elif not name:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    if not name and verb in ("list", "watch", "deletecollection"):
        # Permission for one object allows a list that selects this object by name.
        parts = query.text("fieldSelector").split(",")
        name = next((part[len(_BY_NAME) :].removeprefix("=") for part in parts if part.startswith(_BY_NAME)), "")
    is_namespace = target.plural == "namespaces" and not target.group
    namespace = target.name if is_namespace else target.namespace
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)


class WriteOptions(NamedTuple):
    """Options of create, update and patch. ``manager`` is empty when the client names none."""

    dry_run: bool
    manager: str
    validation: str


@dataclass
class Call:
    """Request of a user on a resource of a store, with the warnings for its answer."""

    store: Store
    access: Access
    user: User
    request: web.BaseRequest
    query: Query
    form: Accepted
    target: Target
    resource: Resource
    #: Decoded body, if it was long and therefore decoded with pauses; else None.
    decoded: Document | None = None
    warnings: list[str] = field(default_factory=list)

    # -- the request -------------------------------------------------------------------------------------

    @cached_property
    def options(self) -> WriteOptions:
        """Checked options of a write."""
        query, kind = self.query, _OPTIONS[self.request.method]
        return WriteOptions(query.dry_run(kind), query.field_manager(kind), query.field_validation(kind))

    @property
    def manager(self) -> str:
        """Name of the writer: the field manager, else the client program."""
        agent = self.request.headers.get("User-Agent", "").split("/", 1)[0].strip()
        return self.options.manager or (agent[:_MAX_MANAGER] if agent and agent.isprintable() else "unknown")

    @property
    def style(self) -> Style:
        """Style of the answer."""
        return style_of(self.form.media_type, self.query.get("pretty"), self.request.headers.get("User-Agent", ""))

    @property
    def content_type(self) -> str:
        """Media type of the body by its header."""
        return self.request.headers.get("Content-Type", "")

    def body(self, raw: bytes) -> Document:
        """Return the decoded body."""
        return self.decoded or decode_body(raw, self.content_type)

    def check_name(self, name: Any) -> None:
        """Refuse an object whose name is not the one in the path. An object without a name gets it."""
        if name not in (None, "", self.target.name):
            text = f"the name of the object ({name}) does not match the name on the URL ({self.target.name})"
            raise ApiError.bad_request(text)

    def check_named(self, data: Any) -> None:
        """Refuse the body of a PUT without a name, as a real server."""
        metadata = data.get("metadata") if isinstance(data, dict) else None
        if isinstance(data, dict) and isinstance(metadata, dict | None) and not (metadata or {}).get("name"):
            text = f"the name of the object ({self.target.name} based on URL) was undeterminable: name must be provided"
            raise ApiError.bad_request(text)

    def check_namespace(self, namespace: Any) -> None:
        if namespace not in (None, "", self.target.namespace):
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError.bad_request(text)

    # -- the object it is about, and the answer ----------------------------------------------------------

    def get(self) -> Item:
        return self.store.get(self.resource.kind, self.target.namespace, self.target.name)

    def create(self, data: Any) -> Item:
        """Create the object. For PUT or PATCH the writer needs the permission to create, too."""
        target, kind = self.target, self.resource.kind
        if self.request.method != "POST":
            self.access.check(
                self.user, Attributes("create", kind.group, kind.plural, "", target.namespace, target.name)
            )
        return self.store.create(kind, target.namespace, data, dry_run=self.options.dry_run)

    def update(self, data: Any, *, dry_run: bool = False) -> Item:
        """Replace the object, or the subresource in the path."""
        write = partial(self.store.update, self.resource.kind, self.target.namespace, self.target.name, data)
        return self._write(write, dry_run=dry_run)

    def patch(self, change: Any, patch_type: str, *, dry_run: bool = False) -> Item:
        """Patch the object, or the subresource in the path."""
        write = partial(self.store.patch, self.resource.kind, self.target.namespace, self.target.name, change)
        return self._write(partial(write, patch_type=patch_type), dry_run=dry_run)

    def _write(self, write: Callable[..., Item], *, dry_run: bool) -> Item:
        # For the store a Scale is a part of the object itself.
        place = "" if self.target.subresource == "scale" else self.target.subresource
        if self.access.guards(self.resource.kind, place):
            before, after = self.get().data(), write(subresource=place, dry_run=True).data()
            self.access.check_claim(
                self.user, _AUTHORIZED_VERBS[self.request.method], self.target.namespace, before, after
            )
        return write(subresource=place, dry_run=dry_run or self.options.dry_run)

    def answer(self, raw: bytes, status: int = 200) -> web.Response:
        return json_answer(raw, status, style=self.style, warnings=self.warnings)


# -- refusals ----------------------------------------------------------------------------------------------


def invalid_options(options: str, field: str, message: str) -> ApiError:
    """Return 422 for a wrong member of an options object. The message begins as field errors do."""
    begin = message.partition(" ")[0]
    reason = {"Forbidden:": "Forbidden", "Required": "Required", "Unsupported": "NotSupported"}.get(begin, "Invalid")
    kind = Kind("meta.k8s.io", "v1", options, options.lower())
    error = ApiError.invalid(kind, "", [(field, f"FieldValue{reason}", message)])
    del error.details["name"]
    return error


def unsupported_value(value: str, *supported: str) -> str:
    """Return the text of a field error for a value that is not supported."""
    texts = ", ".join(f'"{one}"' for one in supported)
    return f'Unsupported value: "{value}": supported values: {texts}'


def not_served(elsewhere: str = "") -> ApiError:
    """Return 404 for a path that is not served. Its details are always there, even if empty, because clients read them.

    ``elsewhere``: the versions that have the resource.
    """
    text = "the server could not find the requested resource"
    return ApiError(404, "NotFound", f"{text}: it is in {elsewhere} here" if elsewhere else text, {})


def wrong_method() -> ApiError:
    """Return 405 for a verb that the resource does not have."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def shutting_down() -> ApiError:
    """Return 503 for a request that comes after the server has begun to close."""
    text = "the server is shutting down, please try again later"
    return ApiError(503, "ServiceUnavailable", text, {"retryAfterSeconds": 5})
