"""State of devices that the plugins of all profiles share: claims, allocations in flight, slices, classes, allocators.

Events of informers feed all of it. A claim's allocation counts from Reserve on. :class:`~.in_flight.InFlight` holds it
until it is written; then the claim itself holds it. :class:`~kubesched.scheduler.dra.allocated.AllocatedDevices` counts
both. All of this happens in one event loop, so a scheduling cycle sees one consistent state (upstream copies the state,
and compares revisions).

Source: rules/devices §3 and §4.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from kubesched.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION, AllocationResult, ResourceClaim, ResourceSlice
from kubesched.api.types import Pod
from kubesched.base.change_log import Follower

from ...dra.allocated import AllocatedDevices, DeviceID
from ...dra.allocator import Allocator, ClaimDemand
from ...dra.check import check_allocations, compare_allocated
from ...dra.features import Features
from ...dra.interface import Verdict
from ...dra.inventory import Inventory
from ...dra.survey import Survey
from ...framework.interface import Handle, RowArray
from ...nodes.node_table import NODE_CHANGED
from ...nodes.nodeinfo import NodeInfo
from ..assume_cache import AssumeCache, OnChange
from .class_mapping import class_mapping
from .in_flight import InFlight
from .slices import SliceTracker

if TYPE_CHECKING:
    from ...nodes import NodeTable

__all__ = ["DeviceManager", "NodeAllocator"]

CLAIMS: Final = "resourceclaims"
SLICES: Final = "resourceslices"
TAINT_RULES: Final = "devicetaintrules"


class DeviceManager:
    """State of devices; all profiles of a scheduler share one, see :meth:`of`.

    Attributes:
        claims: the claims as they count; the queue receives claim events from it.
        in_flight: allocations that were decided and are not written yet.
        slices: the slices with the taints of rules; the queue receives slice events from it.
        classes: the device classes, and the extended resources they serve.
        allocated: the devices in use.
        features: the optional parts that are on.
    """

    def __init__(self, handle: Handle) -> None:
        self.features = Features(
            admin_access=handle.gate("DRAAdminAccess"),
            prioritized_list=handle.gate("DRAPrioritizedList"),
            partitionable_devices=handle.gate("DRAPartitionableDevices"),
            device_taints=handle.gate("DRADeviceTaints"),
            device_binding_and_status=handle.gate("DRADeviceBindingConditions")
            and handle.gate("DRAResourceClaimDeviceStatus"),
            consumable_capacity=handle.gate("DRAConsumableCapacity"),
            list_type_attributes=handle.gate("DRAListTypeAttributes"),
        )
        self.allocated = AllocatedDevices(self.features)
        self.claims = AssumeCache[ResourceClaim]("ResourceClaim")
        self.in_flight = InFlight(self._recount)
        self._inventory = Inventory(self.features)
        self._handle = handle
        #: Allocators by filter timeout in seconds: profiles may have different ones.
        self._allocators: dict[float, NodeAllocator] = {}
        self.slices = SliceTracker()
        self.classes = class_mapping(handle)
        #: Allocations by claim UID, for claims that have one.
        self._allocations: dict[str, AllocationResult] = {}
        #: Claims made for a pod's extended resources, by (namespace, pod name, pod UID).
        self._special: dict[tuple[str, str, str], ResourceClaim] = {}
        #: Waits for a claim to change, by the claim's key.
        self._awaited: dict[str, set[asyncio.Future[None]]] = {}
        #: Callbacks for when the informer shows that a claim is gone, by the claim's key.
        self._after_deletion: dict[str, Callable[[], None]] = {}
        #: Futures for the end of the last write that gives back a pod's reservations, by the pod's UID.
        self._releases: dict[str, asyncio.Future[None]] = {}
        self.claims.add_handler(OnChange(self._claim_changed))
        self.slices.add_handler(_SliceReader(self._inventory))
        handle.watch(CLAIMS, self.claims, relays=True)
        handle.watch(SLICES, self.slices, relays=True)
        if handle.gate("DRADeviceTaintRules") and handle.gate("DRADeviceTaints"):
            handle.watch(TAINT_RULES, self.slices.rules)

    @classmethod
    def of(cls, handle: Handle) -> DeviceManager:
        """Return the manager of a scheduler."""
        manager: DeviceManager = handle.shared("devices", lambda: cls(handle))
        return manager

    def problems(self) -> Iterator[str]:
        """Yield claims that differ from the API server's claims, and allocations that were lost, leaked or given out
        twice.
        """
        informed = self._handle.informed(CLAIMS)
        known = {claim.key: claim for claim in self.claims.values()}
        for key in informed.keys() - known.keys():
            yield f"{CLAIMS} {key}: missing from the assume cache"
        for key in known.keys() - informed.keys():
            yield f"{CLAIMS} {key}: in the assume cache, but gone"
        for key in informed.keys() & known.keys():
            version, shown = known[key].metadata.resource_version, informed[key].metadata.resource_version
            if version != shown:
                yield f"{CLAIMS} {key}: assumed at version {version}, the informer has {shown}"
        uids = (claim.metadata.uid for claim in self.in_flight.claims())
        pending = [_in_flight_key(uid) if uid in self._allocations else uid for uid in uids]
        yield from compare_allocated(self.allocated, pending, known.values())
        yield from check_allocations([*known.values(), *self._unwritten()], self.slices.slices())

    def _unwritten(self) -> Iterator[ResourceClaim]:
        """Iterate over the claims in flight whose allocation is not in the assume cache yet."""
        return (claim for claim in self.in_flight.claims() if claim.metadata.uid not in self._allocations)

    @contextmanager
    def new_node(self, name: str, like: str) -> Iterator[None]:
        """Show within the block, for a new node, slices like those of another node. Nothing of them is in use."""
        made = []
        for number, one in enumerate(self._inventory.slices_of(like)):
            pool = replace(one.spec.pool, name=f"{one.spec.pool.name} of {name}")
            spec = replace(one.spec, node_name=name, pool=pool)
            made.append(replace(one, metadata=replace(one.metadata, name=f"{name} {number}"), spec=spec))
        for new in made:
            self._inventory.put(new)
        try:
            yield
        finally:
            for new in made:
                self._inventory.remove(new.metadata.name)

    @contextmanager
    def without_pods(self, pods: Iterable[Pod]) -> Iterator[list[str]]:
        """Show claims within the block as if these pods were gone: a claim that only they use gives its devices back.

        The value is these claims, in words.
        """
        leaving = {pod.uid: pod for pod in pods}
        released: list[str] = []
        with ExitStack() as stack:
            for key in dict.fromkeys(key for pod in leaving.values() for key in self._claims_of(pod)):
                claim = self.claims.find(key)
                users = claim.status.reserved_for if claim is not None else ()
                if claim is None or claim.status.allocation is None or not users:
                    continue
                if all(user.uid in leaving for user in users):
                    released.append(f"claim {key}")
                    stack.enter_context(self.claims.what_if(key, _released))
                    stack.callback(self._recount, claim.metadata.uid)
                    self.allocated.set_claim(claim.metadata.uid, None)
                    self.allocated.set_claim(_in_flight_key(claim.metadata.uid), None)
            yield released

    def _claims_of(self, pod: Pod) -> Iterator[str]:
        """Yield the keys of a pod's claims."""
        recorded = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for wanted in pod.spec.resource_claims:
            name = wanted.resource_claim_name or recorded.get(wanted.name)
            if name:
                yield f"{pod.namespace}/{name}"
        special = self.special_claim_of(pod)
        if special is not None:
            yield special.key

    def holders_of(self, devices: Collection[DeviceID]) -> dict[str, tuple[str, ...]]:
        """Return the claims that hold one of these devices, by key, with the names of the pods that use them."""
        wanted = set(devices)
        found: dict[str, tuple[str, ...]] = {}
        for claim in (*self.claims.values(), *self._unwritten()):
            allocation = claim.status.allocation
            for one in allocation.devices.results if allocation is not None else ():
                if DeviceID(one.driver, one.pool, one.device) in wanted:
                    found[claim.key] = tuple(sorted(user.name for user in claim.status.reserved_for))
                    break
        return found

    def special_claim_of(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim that an earlier attempt created for the pod's extended resources, or None."""
        return self._special.get((pod.namespace, pod.name, pod.uid))

    async def shown(self, key: str, seconds: float) -> None:
        """Wait until the informer has shown a claim.

        Raises:
            TimeoutError: when the informer has not shown it within ``seconds``.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.claims.find(key) is None:
            left = end - loop.time()
            if left <= 0 or self._handle.pods_in_pre_bind.stopping:
                raise TimeoutError(f"the informer has not shown it within {seconds:g} s, or the scheduler stops")
            await self.changed([key], left)

    async def changed(self, keys: Sequence[str], seconds: float) -> bool:
        """Wait until one of these claims changes, for at most ``seconds``. True if one did."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for key in keys:
            self._awaited.setdefault(key, set()).add(future)
        try:
            await asyncio.wait([future], timeout=seconds)  # wait_for of Python 3.11 can swallow a cancellation
            return future.done()
        finally:
            for key in keys:
                waiting = self._awaited.get(key)
                if waiting is not None:
                    waiting.discard(future)
                    if not waiting:
                        del self._awaited[key]

    def wake(self, keys: Iterable[str]) -> None:
        """End the waits for these claims."""
        for key in keys:
            for future in self._awaited.pop(key, ()):
                if not future.done():
                    future.set_result(None)

    def after_deletion(self, key: str, then: Callable[[], None] | None) -> None:
        """Call ``then`` once the informer shows that a claim is gone; None cancels an earlier call."""
        if then is None:
            self._after_deletion.pop(key, None)
        else:
            self._after_deletion[key] = then

    # -- reservations being given back -----------------------------------------------------------------

    def begin_release(self, pod_uid: str) -> asyncio.Future[None]:
        """Note that a pod's reservations are being given back, until :meth:`end_release`."""
        done = self._releases[pod_uid] = asyncio.get_running_loop().create_future()
        return done

    def end_release(self, pod_uid: str, done: asyncio.Future[None]) -> None:
        if not done.done():
            done.set_result(None)
        if self._releases.get(pod_uid) is done:
            del self._releases[pod_uid]

    async def released(self, pod_uid: str) -> None:
        """Wait until an earlier attempt has given back its reservations.

        Without this wait it could end the reservations of this attempt.
        """
        while (done := self._releases.get(pod_uid)) is not None:
            await asyncio.wait([done])

    # -- allocating ------------------------------------------------------------------------------------

    def allocator(self, timeout: float) -> NodeAllocator:
        """Return the allocator that searches for at most ``timeout`` seconds on one node; 0 for no limit."""
        found = self._allocators.get(timeout)
        if found is None:
            handle = self._handle
            allocator = Allocator(
                self._inventory,
                self.allocated,
                self.classes.find,
                now=handle.clock.now,
                timeout=timeout,
                rng=random.Random(handle.random.getrandbits(64)),
            )
            found = self._allocators[timeout] = NodeAllocator(allocator, handle.snapshot.table)
        return found

    # -- claims ----------------------------------------------------------------------------------------

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new if new is not None else old
        if self._awaited and claim is not None:
            self.wake((claim.key,))
        for claim in (old, new):
            for owner in _special_owners(claim):
                if claim is new and new is not None:
                    self._special[owner] = new
                else:
                    self._special.pop(owner, None)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._allocations.pop(old.metadata.uid, None)
            self._recount(old.metadata.uid)
        if new is not None:
            uid, allocation = new.metadata.uid, new.status.allocation
            before = self._allocations.get(uid)
            if allocation is None:
                self._allocations.pop(uid, None)
            else:
                self._allocations[uid] = allocation
            if before is not allocation:
                self._recount(uid)
        if new is None and old is not None and old.key in self._after_deletion:
            self._after_deletion.pop(old.key)()

    def _recount(self, uid: str) -> None:
        """Count the devices that a claim's object and its allocation in flight hold; if both agree, count them once.

        So the allocator sees no change when an allocation in flight is written.
        """
        written, pending = self._allocations.get(uid), self.in_flight.allocation(uid)
        if written is None:
            written, pending = pending, None
        elif pending is not None and written.devices.results == pending.devices.results:
            pending = None
        self.allocated.set_claim(uid, written)
        self.allocated.set_claim(_in_flight_key(uid), pending)


def _released(claim: ResourceClaim) -> ResourceClaim:
    """The claim without devices and users."""
    return replace(claim, status=replace(claim.status, allocation=None, reserved_for=()))


def _in_flight_key(uid: str) -> str:
    """Key under which an allocation in flight is counted when another one is written."""
    return f"{uid} in flight"


class NodeAllocator:
    """Allocator over the rows of the node table."""

    def __init__(self, allocator: Allocator, nodes: NodeTable) -> None:
        self._allocator = allocator
        self._journal = Follower(nodes.journal)

    def demand(self, claims: Sequence[ResourceClaim]) -> ClaimDemand:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.demand`."""
        return self._allocator.demand(claims)

    def verdicts(self, demand: ClaimDemand, nodes: NodeTable, rows: RowArray) -> npt.NDArray[np.uint8]:
        """Return the :class:`~kubesched.scheduler.dra.interface.Verdict` of each row, uint8[len(rows)]."""
        self._catch_up(nodes)
        return self._allocator.verdicts(demand, rows.astype(np.intp, copy=False))

    def preferences(self, demand: ClaimDemand, nodes: NodeTable, rows: RowArray) -> npt.NDArray[np.int64]:
        """Score rows by the devices that the claims would get, int64[len(rows)].

        See :meth:`kubesched.scheduler.dra.allocator.Allocator.preferences`.
        """
        self._catch_up(nodes)
        return self._allocator.preferences(demand, rows.astype(np.intp, copy=False))

    def allocate(self, demand: ClaimDemand, node: NodeInfo) -> tuple[AllocationResult, ...] | None:
        """Return the devices of each claim on a node; None if the node has too few.

        Raises:
            DeviceAllocationFailure: see :meth:`kubesched.scheduler.dra.allocator.Allocator.allocate`.
        """
        assert node.node is not None
        return self._allocator.allocate(demand, node.node)

    def surveys(self, demand: ClaimDemand, nodes: Iterable[NodeInfo]) -> Iterator[list[Survey]]:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.surveys`."""
        return self._allocator.surveys(demand, (each.node for each in nodes if each.node is not None))

    def verdict(self, demand: ClaimDemand, nodes: NodeTable, row: int) -> Verdict:
        """Return the verdict of one row."""
        self._catch_up(nodes)
        return self._allocator.verdict(demand, row)

    def follower(self, nodes: NodeTable) -> Follower[int]:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.follower`."""
        self._catch_up(nodes)
        return self._allocator.follower()

    def changed(self, nodes: NodeTable, follower: Follower[int], demand: ClaimDemand | None = None) -> RowArray | None:
        """Rows of the nodes that changed; see :meth:`kubesched.scheduler.dra.allocator.Allocator.changed`."""
        self._catch_up(nodes)
        rows = self._allocator.changed(follower, demand)
        if rows is None:
            return None
        found: RowArray = np.array(rows, np.intp)
        return found[nodes.alive[found]]

    def uses_common_pools(self, demand: ClaimDemand) -> bool:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.uses_common_pools`."""
        return self._allocator.uses_common_pools(demand)

    def devices_of_class(self, name: str, nodes: Iterable[NodeInfo]) -> list[tuple[int, int]]:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.devices_of_class`."""
        return self._allocator.devices_of_class(name, (each.node for each in nodes if each.node is not None))

    def all_of_class(self, name: str) -> tuple[int, int]:
        """See :meth:`kubesched.scheduler.dra.allocator.Allocator.all_of_class`."""
        return self._allocator.all_of_class(name)

    def _catch_up(self, nodes: NodeTable) -> None:
        """Inform the allocator of nodes that came, changed or went."""
        if not self._journal.is_behind:
            return
        entries = self._journal.read()
        rows = range(nodes.capacity) if entries is None else {e >> 1 for e in entries if e & 1 == NODE_CHANGED}
        for row in rows:
            info = nodes.infos[row]
            self._allocator.set_node(row, info.node if info is not None else None)


class _SliceReader:
    """Handler that puts slices into the inventory."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory: Final = inventory

    def on_add(self, obj: ResourceSlice, is_initial: bool) -> None:
        self._inventory.put(obj)

    def on_update(self, old: ResourceSlice, new: ResourceSlice) -> None:
        self._inventory.put(new)

    def on_delete(self, obj: ResourceSlice) -> None:
        self._inventory.remove(obj.metadata.name)


def _special_owners(claim: ResourceClaim | None) -> list[tuple[str, str, str]]:
    if claim is None or claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return []
    meta = claim.metadata
    return [(meta.namespace, owner.name, owner.uid) for owner in meta.owner_references if owner.controller]
