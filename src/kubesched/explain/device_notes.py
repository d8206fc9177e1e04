"""Notes about claims of devices that pods wait for, besides free devices: missing objects, and nodes of shared claims.

They are read from the objects. The plugin itself names the devices that a node lacks. Caller: :mod:`.claim_notes`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.kinds import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kubesched.api.resource import ResourceClaim
from kubesched.api.types import Pod

from .objects import Objects

__all__ = ["device_notes"]

#: Most classes that one note lists.
_MOST: int = 5


def device_notes(objects: Objects, pod: Pod) -> Iterator[str]:
    """Yield a sentence for each claim that cannot be used as it is, or that ties the pod to some nodes."""
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for wanted in pod.spec.resource_claims:
        template = wanted.resource_claim_template_name
        name = wanted.resource_claim_name or recorded.get(wanted.name)
        claim = objects.get(RESOURCE_CLAIMS, pod.namespace, name) if name else None
        if claim is not None:
            yield from _claim(objects, claim)
        elif name:
            yield f"resource claim {name} does not exist"
        elif (
            template
            and objects.get(RESOURCE_CLAIM_TEMPLATES, pod.namespace, template) is None
            and objects.knows(RESOURCE_CLAIM_TEMPLATES)
        ):
            yield f"resource claim template {template} does not exist"


def _claim(objects: Objects, claim: ResourceClaim) -> Iterator[str]:
    name = claim.metadata.name
    if claim.metadata.deletion_timestamp is not None:
        yield f"resource claim {name} is being deleted"
    elif claim.status.allocation is not None:
        devices = claim.status.allocation.devices.results
        held = ", ".join(sorted({f"{one.device} of pool {one.pool}" for one in devices}))
        users = ", ".join(sorted(one.name for one in claim.status.reserved_for)) or "no pod"
        yield f"resource claim {name} has {held} already, used by {users}: it can be used only where these devices are"
    else:
        yield from _missing_classes(objects, claim)


def _missing_classes(objects: Objects, claim: ResourceClaim) -> Iterator[str]:
    classes = sorted(item.metadata.name for item in objects.all(DEVICE_CLASSES))
    for request in claim.spec.devices.requests:
        parts = (request.exactly,) if request.exactly is not None else request.first_available
        for part in parts:
            if part.device_class_name not in classes:
                known = f"there is {', '.join(classes[:_MOST])}" if classes else "there is none"
                yield (
                    f"resource claim {claim.metadata.name}, request {request.name}: "
                    f"the device class {part.device_class_name} does not exist ({known})"
                )
