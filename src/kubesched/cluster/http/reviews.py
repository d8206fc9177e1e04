"""Access and token reviews: every client has all permissions here, and these endpoints return that.

Caller: :mod:`.dispatch`, for POSTs on authorization.k8s.io and authentication.k8s.io.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.wire import ApiError

__all__ = ["answer_review"]

USER: Final[dict[str, Any]] = {"username": "kubesched:admin", "groups": ["system:masters", "system:authenticated"]}
_ALLOWED: Final = "the embedded cluster allows everything"
_ANONYMOUS: Final = "system:anonymous"
_DENIED: Final = "the embedded cluster was started with a token, and requires it"


def answer_review(kind: str, api_version: str, body: Any, token: str | None) -> dict[str, Any]:
    """The review as posted, with its status filled in.

    Raises:
        ApiError: 400 for a body that is no object of this kind.
    """
    if not isinstance(body, dict):
        raise ApiError.bad_request(f"a {kind} is an object, got {type(body).__name__}")
    named = body.get("kind")
    if named and named != kind:
        raise ApiError.bad_request(f"{named} cannot be handled as a {kind}")
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
