"""Who may ask for devices with admin access: the claims of namespaces with a label (spec "DynamicResources" section 1).

Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from typing import Any, Final

from .admission import Admission
from .validation import Causes

__all__ = ["check_admin_access"]

_LABEL: Final = "resource.kubernetes.io/admin-access"
_TEXT: Final = f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace"


def check_admin_access(data: dict[str, Any], causes: Causes, admission: Admission) -> None:
    """A claim or a template that is created; its spec never changes."""
    spec = data.get("spec") or {}
    spec = spec.get("spec") or spec
    requests = (spec.get("devices") or {}).get("requests") or ()
    if any((request.get("exactly") or {}).get("adminAccess") for request in requests) and (
        admission.namespace_labels(data["metadata"]["namespace"]).get(_LABEL) != "true"
    ):
        causes.forbidden("", _TEXT)
