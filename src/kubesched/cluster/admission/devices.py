"""The tables of what is checked for each kind of ``resource.k8s.io``, beyond the rules of its fields.

Checked is what a scheduler, a driver or a user would notice. Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .device_claims import check_claim, check_claim_update, check_template
from .device_members import Data
from .device_supply import check_class, check_slice, check_taint_rule
from .validation import Causes

__all__ = ["DEVICE_CHECKS", "DEVICE_UPDATES"]


DEVICE_CHECKS: Final[dict[str, Callable[[Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": check_claim,
    "resourceclaimtemplates.resource.k8s.io": check_template,
    "resourceslices.resource.k8s.io": check_slice,
    "deviceclasses.resource.k8s.io": check_class,
    "devicetaintrules.resource.k8s.io": check_taint_rule,
}

#: What a change from one state to the next must not do.
DEVICE_UPDATES: Final[dict[str, Callable[[Data, Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": check_claim_update,
}
