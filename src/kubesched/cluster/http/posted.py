"""Bodies that are not stored: bindings, evictions, the options of a deletion, access reviews and token requests.

Callers: :mod:`.dispatch`, :mod:`.writing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from aiohttp import web

from kubesched.api.kinds import JOBS, PODS, REPLICATION_CONTROLLERS, Kind
from kubesched.api.wire import ApiError
from kubesched.base.times import timestamp

from ..schema import encode
from .answers import success
from .calls import Call, invalid_options, unsupported_value
from .rbac import Attributes
from .users import User

__all__ = ["answer_review", "answer_token_request", "bind", "delete_options", "evict", "expect"]

_T = TypeVar("_T")
_TOKEN_REQUESTS: Final = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")
_AUDIENCES: Final = ("https://kubernetes.default.svc.cluster.local",)
#: Warning about the default of old versions, which stays for them. Rule: upstream ``DefaultGarbageCollectionPolicy``.
_PRESERVED: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_SHORTEST: Final = 600
_LONGEST: Final = 1 << 32


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """Options of a deletion. Options that the body leaves out are None."""

    grace_period_seconds: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    annotations: dict[str, str] | None = None


class _Reference(msgspec.Struct):
    kind: str | None = None
    name: str | None = None


class Binding(msgspec.Struct):
    metadata: _Metadata | None = None
    target: _Reference | None = None


class Eviction(msgspec.Struct, rename="camel"):
    metadata: _Metadata | None = None
    delete_options: DeleteOptions | None = None


def expect(data: Any, kind: str, versions: tuple[str, ...] = ()) -> None:
    """Refuse a body that names another kind, or a version that is not in ``versions`` (if there are any).

    Raises:
        ApiError: 400.
    """
    if not isinstance(data, dict):
        raise ApiError.bad_request(f"a {kind} is an object, got {type(data).__name__}")
    given, version = data.get("kind"), data.get("apiVersion")
    if given not in (None, "", kind) or (versions and version not in (None, "", *versions)):
        raise ApiError.bad_request(f"{version or ''} {given or ''} cannot be handled as a {kind}".strip())


def _decoded(call: Call, raw: bytes, type_: type[_T], versions: tuple[str, ...] = ()) -> _T:
    kind = type_.__name__
    data = call.body(raw).data if raw.strip() else None
    data = {} if data is None else data
    expect(data, kind, versions)
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        raise ApiError.bad_request(f"the body cannot be handled as a {kind}: {error}") from None


def bind(call: Call, raw: bytes) -> web.Response:
    """Answer the POST of a Binding, on the pod's subresource or on ``bindings``."""
    dry_run, name = call.query.dry_run("CreateOptions"), call.target.name
    body = _decoded(call, raw, Binding, ("v1",))
    metadata, target = body.metadata or _Metadata(), body.target or _Reference()
    if name and metadata.name != name:
        raise ApiError.bad_request("name in URL does not match name in Binding object")
    call.check_namespace(metadata.namespace)
    if target.kind not in (None, "", "Node"):
        text = unsupported_value(target.kind, "Node", "<empty>")
        raise ApiError.invalid(PODS, name, [("target.kind", "FieldValueNotSupported", text)])
    call.store.bind(
        call.target.namespace,
        metadata.name or "",
        metadata.uid or "",
        target.name or "",
        annotations=metadata.annotations,
        dry_run=dry_run,
    )
    return call.answer(success(code=201), 201)


def evict(call: Call, raw: bytes) -> web.Response:
    """Answer the POST of an Eviction."""
    dry_run, target = call.query.dry_run("CreateOptions"), call.target
    body = _decoded(call, raw, Eviction, ("policy/v1", "policy/v1beta1"))
    metadata, options = body.metadata or _Metadata(), body.delete_options or DeleteOptions()
    if metadata.name not in (None, "", target.name):
        raise ApiError.bad_request("name in URL does not match name in Eviction object")
    call.check_namespace(metadata.namespace)
    asked = options.preconditions or _Preconditions()
    call.store.evict(
        target.namespace,
        target.name,
        uid=asked.uid or "",
        resource_version=asked.resource_version or "",
        grace_period_seconds=options.grace_period_seconds,
        dry_run=dry_run or options.dry_run == ["All"],
    )
    return call.answer(success(code=201), 201)


def delete_options(call: Call, raw: bytes) -> dict[str, Any]:
    """Return the options of a deletion for the store: from the body if there is one, else from the query."""
    query, name = call.query, DeleteOptions.__name__
    given = _decoded(call, raw, DeleteOptions)
    grace, orphan = given.grace_period_seconds, given.orphan_dependents
    if grace is None:
        grace = query.number("gracePeriodSeconds")
    if orphan is None and "orphanDependents" in query:
        orphan = query.flag("orphanDependents")
    policy = given.propagation_policy or query.text("propagationPolicy")
    if policy and orphan is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise invalid_options(name, "propagationPolicy", text)
    if policy not in ("", "Background", "Foreground", "Orphan"):
        text = unsupported_value(policy, "Background", "Foreground", "Orphan")
        raise invalid_options(name, "propagationPolicy", text)
    if given.dry_run not in (None, [], ["All"]):
        raise ApiError.bad_request(f'dryRun: Unsupported value: {given.dry_run!r}: supported values: "All"')
    preconditions, kind = given.preconditions or _Preconditions(), call.resource.kind
    if not policy and orphan is None and kind in (JOBS, REPLICATION_CONTROLLERS):
        orphan = True
        if kind == JOBS:
            call.warnings.append(_PRESERVED)
    return {
        "uid": preconditions.uid or "",
        "resource_version": preconditions.resource_version or "",
        "grace_period_seconds": grace,
        "propagation_policy": policy or ("Orphan" if orphan else ""),
        "dry_run": query.dry_run(name) or given.dry_run == ["All"],
    }


# -- reviews and tokens ------------------------------------------------------------------------------------


def answer_review(call: Call, raw: bytes) -> web.Response:
    """Return the review as posted, with its status filled in.

    Raises:
        ApiError: 400 for a body that is no object of this kind, 422 for a review that names no request.
    """
    kind = call.resource.kind
    review = _review(call, raw, kind)
    review["status"] = _REVIEWED[kind.kind](call, review["spec"])
    return call.answer(encode(review), 201)


def answer_token_request(call: Call, raw: bytes) -> web.Response:
    """Return a token of a ServiceAccount.

    Raises:
        ApiError: 400 for a body that is no TokenRequest, 422 for a time that is too short.
    """
    request, now = _review(call, raw, _TOKEN_REQUESTS), call.store.clock.now()
    spec = request["spec"] = {"audiences": _AUDIENCES, "expirationSeconds": 3600, **request["spec"]}
    seconds = spec["expirationSeconds"]
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise ApiError.bad_request(f"spec.expirationSeconds: must be an integer, got {seconds!r}")
    if not _SHORTEST <= seconds <= _LONGEST:
        text = f"Invalid value: {seconds}: must be between {_SHORTEST} (10 minutes) and {_LONGEST}"
        cause = ("spec.expirationSeconds", "FieldValueInvalid", text)
        raise ApiError.invalid(_TOKEN_REQUESTS, "", [cause])
    name, namespace = call.target.name, call.target.namespace
    request["metadata"] = {"name": name, "namespace": namespace, "creationTimestamp": timestamp(now)}
    token = call.access.accounts.issue(namespace, name, spec["audiences"] or (), seconds)
    request["status"] = {"token": token, "expirationTimestamp": timestamp(now + seconds)}
    return call.answer(encode(request), 201)


def _review(call: Call, raw: bytes, kind: Kind) -> dict[str, Any]:
    """Return the posted object, without a status."""
    body = call.body(raw).data
    expect(body, kind.kind)
    for name in ("metadata", "spec"):
        if not isinstance(body.get(name), dict | None):
            raise ApiError.bad_request(f"{name}: must be an object, got {body[name]!r:.100}")
    spec: dict[str, Any] = body.get("spec") or {}
    audiences = spec.get("audiences")
    if audiences is not None and not (isinstance(audiences, list) and all(isinstance(one, str) for one in audiences)):
        raise ApiError.bad_request(f"spec.audiences: must be a list of strings, got {audiences!r:.100}")
    metadata = body.get("metadata") or {}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, "spec": spec}


# -- what reviews say --------------------------------------------------------------------------------------


class _Asked(msgspec.Struct):
    """Attributes of the request in a review. Only ``path`` is set for a request on no resource."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class _AccessSpec(msgspec.Struct, rename="camel"):
    user: str = ""
    groups: list[str] | None = None
    uid: str = ""
    resource_attributes: _Asked | None = None
    non_resource_attributes: _Asked | None = None


def _access_review(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the status of an access review. In a self review the user is the sender."""
    kind = call.resource.kind
    try:
        asked = msgspec.convert(spec, _AccessSpec)
    except msgspec.ValidationError as error:
        raise ApiError.bad_request(f"spec: cannot be handled as that of a {kind.kind}: {error}") from None
    user = call.user
    if kind.kind != "SelfSubjectAccessReview":
        user = User(asked.user, tuple(asked.groups or ()), asked.uid)
    on_resource, on_path = asked.resource_attributes, asked.non_resource_attributes
    if call.access.roles is not None and (on_resource is None) is (on_path is None):
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise ApiError.invalid(kind, "", [("spec.resourceAttributes", "FieldValueInvalid", text)])
    if on_path is not None:
        wanted = Attributes(on_path.verb, path=on_path.path or "/")
    else:
        one = on_resource or _Asked()
        wanted = Attributes(one.verb, one.group, one.resource, one.subresource, one.namespace, one.name)
        if kind.namespaced:
            call.check_namespace(wanted.namespace)
            wanted = wanted._replace(namespace=call.target.namespace)
    decision = call.access.decide(user, wanted)
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _rules_review(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    namespace = spec.get("namespace") or ""
    rules, problem = call.access.rules(call.user, namespace if isinstance(namespace, str) else "")
    return {
        "resourceRules": [rule.to_data() for rule in rules if not rule.non_resource_urls],
        "nonResourceRules": [rule.to_data() for rule in rules if rule.non_resource_urls],
        "incomplete": bool(problem),
        **({"evaluationError": problem} if problem else {}),
    }


def _token_review(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    token = spec.get("token")
    given = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""
    user = call.access.bearer(given)
    if user is None:
        return {"user": {}, "error": "the token is not the one of this server, nor of a service account"}
    return {"authenticated": True, "user": user.to_data(), "audiences": spec.get("audiences") or []}


#: Functions that compute the status of a review, by its kind.
_REVIEWED: Final[dict[str, Callable[[Call, dict[str, Any]], dict[str, Any]]]] = {
    "SubjectAccessReview": _access_review,
    "SelfSubjectAccessReview": _access_review,
    "LocalSubjectAccessReview": _access_review,
    "SelfSubjectRulesReview": _rules_review,
    "SelfSubjectReview": lambda call, spec: {"userInfo": call.user.to_data()},
    "TokenReview": _token_review,
}
