"""Access and token reviews: every client has all permissions here, and these endpoints return that.

Caller: :mod:`.dispatch`, for POSTs on authorization.k8s.io and authentication.k8s.io.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import Kind
from ...api.times import timestamp
from ...api.wire import ApiError
from .posted import expect

__all__ = ["answer_review", "answer_token_request"]

USER: Final[dict[str, Any]] = {"username": "kubesched:admin", "groups": ["system:masters", "system:authenticated"]}
_TOKEN_REQUESTS: Final = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")
_AUDIENCES: Final = ("https://kubernetes.default.svc.cluster.local",)
_SHORTEST: Final = 600
_LONGEST: Final = 1 << 32
_ALLOWED: Final = "the embedded cluster allows everything"
_ANONYMOUS: Final = "system:anonymous"
_DENIED: Final = "the embedded cluster was started with a token, and requires it"


def answer_review(kind: str, api_version: str, body: Any, token: str | None) -> dict[str, Any]:
    """The review as posted, with its status filled in.

    Raises:
        ApiError: 400 for a body that is no object of this kind.
    """
    expect(body, kind)
    given = body.get("spec")
    spec: dict[str, Any] = given if isinstance(given, dict) else {}
    metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": metadata,
        "spec": spec,
        "status": _status(kind, spec, token),
    }


def answer_token_request(body: Any, namespace: str, name: str, token: str | None, now: float) -> dict[str, Any]:
    """A token of a ServiceAccount: the server's own, as it has one user only; one without a token ignores any.

    Raises:
        ApiError: 400 for a body that is no TokenRequest, 422 for a time that is too short.
    """
    request = answer_review("TokenRequest", "authentication.k8s.io/v1", body, token)
    spec = request["spec"] = {"audiences": _AUDIENCES, "expirationSeconds": 3600, **request["spec"]}
    seconds = spec["expirationSeconds"]
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise ApiError.bad_request(f"spec.expirationSeconds: must be an integer, got {seconds!r}")
    if not _SHORTEST <= seconds <= _LONGEST:
        text = f"Invalid value: {seconds}: must be between {_SHORTEST} (10 minutes) and {_LONGEST}"
        cause = ("spec.expirationSeconds", "FieldValueInvalid", text)
        raise ApiError.invalid(_TOKEN_REQUESTS, "", [cause])
    request["metadata"] = {"name": name, "namespace": namespace, "creationTimestamp": timestamp(now)}
    text = token if token is not None else "any-token-is-accepted"
    request["status"] = {"token": text, "expirationTimestamp": timestamp(now + seconds)}
    return request


def _status(kind: str, spec: dict[str, Any], token: str | None) -> dict[str, Any]:
    if kind == "SelfSubjectRulesReview":
        return {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    if kind == "SelfSubjectReview":
        return {"userInfo": USER}
    if kind == "TokenReview":
        if token is None or spec.get("token") == token:
            return {"authenticated": True, "user": USER, "audiences": spec.get("audiences") or []}
        return {"user": {}, "error": "the token is not the one of this server"}
    if token is not None and spec.get("user") == _ANONYMOUS:
        return {"allowed": False, "reason": _DENIED}
    return {"allowed": True, "reason": _ALLOWED}
