"""Beginning of an attempt: finds the pod's claims, and rejects the pod if they cannot be allocated on any node.

Source: rules/devices §5.1, §5.2 and §11.2.
"""

from __future__ import annotations

from kubesched.api.requests import may_be_devices
from kubesched.api.resource import DeviceRequest, DeviceSubRequest, ExactDeviceRequest
from kubesched.api.selectors import NodeSelectorMatcher, SelectorError

from ...framework.interface import Handle
from ...framework.status import Status
from ...nodes.podinfo import PodInfo
from .claim_state import ClaimState, PodClaim
from .claims import resolve_with_groups
from .extended_resources import made_up_claim
from .group_claims import GroupClaims
from .manager import DeviceManager

__all__ = ["Preparation"]


class Preparation:
    """Maker of attempts' states, for one profile."""

    def __init__(self, handle: Handle, manager: DeviceManager) -> None:
        self._handle = handle
        self._manager = manager
        self.groups = GroupClaims(handle)
        self._serves_resources = handle.gate("DRAExtendedResource")

    def is_served(self, pod: PodInfo) -> bool:
        """True if a device class serves one of the extended resources that the pod requests."""
        if not self._serves_resources:
            return False
        class_of = self._manager.classes.class_of
        return any(amount and class_of(name) for name, amount in pod.fit_requests.scalars.items())

    def begin(self, pod: PodInfo) -> tuple[ClaimState, Status | None]:
        """Begin an attempt. Return its state and a status. The status is None unless the pod is rejected on all nodes.

        The state of a rejected pod has no claims.
        """
        attempt = ClaimState(pod.pod)
        try:
            claims = resolve_with_groups(pod.pod, self._manager.claims.get, self.groups.group_of(pod.pod))
        except LookupError as error:
            return attempt, Status.unresolvable(str(error))
        sharing = self.groups.sharing_key(pod.pod)
        found = [PodClaim(claim, group=group, sharing=sharing) for claim, group in claims]
        if self.is_served(pod):
            found.append(self._special_claim(pod, attempt))
        for each in found:
            problem = self._check(each)
            if problem is not None:
                return attempt, problem
        attempt.claims = found
        return attempt, None

    def _special_claim(self, pod: PodInfo, attempt: ClaimState) -> PodClaim:
        class_of = self._manager.classes.class_of
        attempt.resources = {
            name: class_of(name)
            for name, amount in sorted(pod.fit_requests.scalars.items())
            if amount and may_be_devices(name)
        }
        leftover = self._manager.special_claim_of(pod.pod)
        attempt.is_leftover = leftover is not None
        if leftover is not None:
            return PodClaim(leftover, is_special=True)
        uid = f"{self._handle.random.getrandbits(128):032x}"
        return PodClaim(made_up_claim(pod.pod, uid), is_special=True)

    def _check(self, each: PodClaim) -> Status | None:
        """Check one claim before any node. Return a rejection of the pod, or None."""
        claim = each.claim
        allocation = claim.status.allocation
        if allocation is None:
            pending = self._manager.in_flight.shared_with(claim.metadata.uid, each.sharing)
            allocation = each.shared = pending.status.allocation if pending is not None else None
        if allocation is not None:
            if allocation.node_selector is not None:
                try:
                    each.selector = NodeSelectorMatcher.compile_strict(allocation.node_selector)
                except SelectorError as error:
                    return Status.from_error(error)
            return None
        if claim.metadata.uid in self._manager.in_flight:
            return Status.unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        if each.is_special:
            return None
        for request in claim.spec.devices.requests:
            problem = self._check_request(claim.key, request)
            if problem is not None:
                return problem
        return None

    def _check_request(self, claim: str, request: DeviceRequest) -> Status | None:
        if request.exactly is not None:
            return self._check_class(request.name, request.exactly)
        if not request.first_available:
            return Status.unresolvable(f"resource claim {claim}, request {request.name}: unknown request type")
        if not self._manager.features.prioritized_list:
            return Status.unresolvable(
                f"resource claim {claim}, request {request.name}: has subrequests, "
                "but the DRAPrioritizedList feature is disabled"
            )
        problems = (self._check_class(f"{request.name}/{sub.name}", sub) for sub in request.first_available)
        return next((problem for problem in problems if problem is not None), None)

    def _check_class(self, request: str, asked: ExactDeviceRequest | DeviceSubRequest) -> Status | None:
        name = asked.device_class_name
        if not name:
            return Status.from_error(f"request {request}: unsupported request type")
        if self._manager.classes.find(name) is None:
            return Status.unresolvable(f"request {request}: device class {name} does not exist")
        return None
