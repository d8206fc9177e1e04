"""Bodies of requests: what a write makes of a stored object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubesched.api.kinds import NAMESPACES, PODS, Kind
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiError

from ..schema import Document, Stored, apply_json_patch, apply_merge_patch, apply_strategic_patch, open_section

__all__ = ["HEAD", "body_metadata", "combined", "patched"]

#: Members of an object that every kind has.
HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})


def body_metadata(kind: Kind, obj: Any) -> Mapping[str, Any]:
    """Return the metadata of a request body, which must be an object of the right kind."""
    # Nearly always plain dicts. Recognising another mapping type takes much longer.
    if type(obj) is not dict and not isinstance(obj, Mapping):
        raise ApiError.bad_request(f"a {kind.kind} is an object, got {type(obj).__name__}")
    version, name = obj.get("apiVersion"), obj.get("kind")
    if (version and version != kind.api_version) or (name and name != kind.kind):
        raise ApiError.bad_request(
            f'{name or kind.kind} in version "{version or kind.api_version}" cannot be handled as a {kind.kind} '
            f'in version "{kind.api_version}"'
        )
    metadata = obj.get("metadata")
    if metadata is None:
        return {}
    if type(metadata) is not dict and not isinstance(metadata, Mapping):
        raise ApiError.bad_request(f"metadata: must be an object, got {metadata!r}")
    return metadata


def patched(old: Stored, before: Document, patch: Any, patch_type: str) -> Document:
    """Return what a patch makes of an object. ``before`` is the document of ``old``.

    Raises:
        ApiError: 415 for another patch type, 400 or 422 for a patch that cannot be applied.
    """
    if patch_type == JSON_PATCH:
        document = apply_json_patch(old.data(), patch)
    elif patch_type in (MERGE_PATCH, STRATEGIC_PATCH):
        if not isinstance(patch, Mapping):
            raise ApiError.bad_request("a merge patch of an object is an object")
        if patch.get("metadata") == {"uid": old.uid}:
            # Only a precondition, which holds: the metadata is unchanged.
            patch = {section: value for section, value in patch.items() if section != "metadata"}
        document = dict(before)
        if "metadata" in patch:
            document["metadata"] = old.section("metadata")
        for section in patch:
            open_section(document, section)
        apply = apply_merge_patch if patch_type == MERGE_PATCH else apply_strategic_patch
        document = apply(document, dict(patch))
    else:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}",
        )
    if not isinstance(document, dict) or not isinstance(open_section(document, "metadata"), dict):
        raise ApiError.bad_request("the patch leaves no object with metadata")
    return document


def combined(
    kind: Kind, metadata: Document, before: Document, document: Document, subresource: str, *, has_status: bool
) -> Document:
    """Return the result of writing a (sub)resource. ``before`` is the stored object, ``document`` the written one.

    A write to ``status`` takes only the status from ``document``; any other write takes everything else from it.

    Raises:
        ApiError: 404, when the kind has no such subresource.
    """
    if subresource == "status" and has_status:
        rest, status = before, document
    elif subresource == "" or (subresource == "resize" and kind == PODS):
        rest, status = document, before
    elif subresource == "finalize" and kind == NAMESPACES:
        rest, status = {**before, "spec": document.get("spec") or {}}, before
    elif subresource == "approval" and kind.group == "certificates.k8s.io":
        given = (open_section(document, "status") or {}).get("conditions") or []
        rest, status = before, {"status": {**(open_section(before, "status") or {}), "conditions": given}}
    else:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    after = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    after.update((key, value) for key, value in rest.items() if key not in HEAD)
    if kind == NAMESPACES and subresource != "finalize" and "spec" in before:
        after["spec"] = before["spec"]  # its finalizers are written through the subresource
    if has_status:
        after.pop("status", None)
        after.update((key, value) for key, value in status.items() if key == "status")
    return after
