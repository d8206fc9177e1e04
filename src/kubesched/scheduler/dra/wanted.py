"""Content of claims, prepared once for all nodes: requests, constraints, and the device models that serve them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from kubesched.api.quantity import QuantityError
from kubesched.api.resource import (
    ALLOCATION_MODE_ALL,
    ALLOCATION_MODE_EXACT_COUNT,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    Quantities,
    ResourceClaim,
)
from kubesched.api.taints import tolerated

from .allocated import PoolID
from .capacity import Amount, consumption_of
from .features import Features
from .interface import ClassLookup
from .models import MOST_REMEMBERED, DeviceModel, attribute_of
from .selectors import Selector, SelectorCache, SelectorError

__all__ = ["ClaimWant", "Problem", "RequestWant", "Service", "Want", "Wanted"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem as an error text. If the index of a claim is given, the claim's name is put before the text."""

    text: str
    claim: int | None = None

    def message(self, claims: Sequence[ResourceClaim]) -> str:
        return self.text if self.claim is None else f"claim {claims[self.claim].key}{self.text}"


@dataclass(slots=True, eq=False)
class Want:
    """Want of a claim: one request with its own class, or one subrequest.

    ``name`` is ``request`` or ``request/subrequest``, as in results; ``request`` is the part before the slash.
    """

    index: int
    claim: int
    request: str
    name: str
    class_name: str
    takes_all: bool
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Quantities
    #: Fault of the request itself, the same on every node.
    problem: Problem | None = None
    class_selectors: tuple[Selector, ...] = ()
    selectors: tuple[Selector, ...] = ()

    @property
    def short(self) -> str:
        """Name in messages. For a subrequest, it is the name of the subrequest alone."""
        return self.name.rpartition("/")[2]

    def all_devices_problem(self, pool: PoolID, what: str) -> Problem:
        """Problem of a request for all devices if a pool has the fault ``what``."""
        text = f", request {self.short}: asks for all devices, but resource pool {pool} is currently {what}"
        return Problem(text, self.claim)


@dataclass(frozen=True, slots=True, eq=False)
class RequestWant:
    """Request with its wants: one for ``exactly``, or one for each alternative of ``firstAvailable``, in order."""

    name: str
    wants: tuple[Want, ...]
    is_list: bool


@dataclass(slots=True, eq=False)
class ClaimWant:
    index: int
    requests: list[RequestWant] = field(default_factory=list)
    constraints: tuple[DeviceConstraint, ...] = ()
    #: Problem of a constraint that names no attribute.
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Service of one model's devices to the wants of a demand; tuples are by index of the want.

    ``selects``: True if the selectors select the model, or a problem if they fail. ``tolerated``: True if no taint is
    in the way. ``consumption``: amounts that a share, or the whole device, consumes; None if the device cannot serve
    the want. ``attributes``: type and value of each attribute that constraints name.
    """

    number: int
    model: DeviceModel
    selects: tuple[bool | Problem, ...]
    tolerated: tuple[bool, ...]
    consumption: tuple[dict[str, Amount] | None, ...]
    attributes: dict[str, tuple[str, Any] | None]


class Services(NamedTuple):
    """Services of the devices of a pool, in order, and their numbers."""

    numbers: tuple[int, ...]
    services: tuple[Service, ...]


class Wanted:
    """Content of a list of claims. Claims of equal content share one object, even if they have other names."""

    def __init__(
        self, claims: Sequence[ResourceClaim], features: Features, classes: ClassLookup, selectors: SelectorCache
    ) -> None:
        self.features = features
        self._lookup = classes
        self._selectors = selectors
        #: Class by name, as it was when the content was prepared.
        self.classes: dict[str, DeviceClass | None] = {}
        self.wants: list[Want] = []
        self.claims = [self._claim(index, claim) for index, claim in enumerate(claims)]
        self._lists = [request.wants for claim in self.claims for request in claim.requests if request.is_list]
        names = {
            name: None
            for claim in self.claims
            for constraint in claim.constraints
            for name in (constraint.match_attribute, constraint.distinct_attribute)
            if name
        }
        self.attributes = tuple(names)
        self._by_model: dict[int, Service] = {}
        self._by_projection: dict[Hashable, Service] = {}
        self._service_lists: dict[tuple[int, ...], Services] = {}
        self._by_content: dict[Hashable, int] = {}
        self._numbers = count()

    @property
    def is_current(self) -> bool:
        """True if the classes have not changed since this content was prepared."""
        return all(self._lookup(name) is known for name, known in self.classes.items())

    def preference(self, chosen: Iterable[Want]) -> int:
        """Score of a solution: the sum, over requests with a list, of 8 minus the index of the chosen alternative."""
        if not self._lists:
            return 0
        indices = {want.index for want in chosen}
        return sum(_BEST - place for wants in self._lists for place, want in enumerate(wants) if want.index in indices)

    # -- requests ----------------------------------------------------------------------------------------------

    def _claim(self, index: int, claim: ResourceClaim) -> ClaimWant:
        spec = claim.spec.devices
        wanted = ClaimWant(index)
        for request in spec.requests:
            wanted.requests.append(self._request(index, request))
        for number, constraint in enumerate(spec.constraints):
            known = constraint.match_attribute is not None or (
                constraint.distinct_attribute is not None and self.features.consumable_capacity
            )
            if not known:
                text = f", constraint #{number}: empty constraint (unsupported constraint type?)"
                wanted.problem = wanted.problem or Problem(text, index)
        wanted.constraints = spec.constraints
        return wanted

    def _request(self, claim: int, request: DeviceRequest) -> RequestWant:
        if request.exactly is not None:
            return RequestWant(request.name, (self._want(claim, request.name, request.name, request.exactly),), False)
        if not request.first_available:
            empty = self._want(claim, request.name, request.name, ExactDeviceRequest())
            return RequestWant(request.name, (empty,), False)
        wants = tuple(self._want(claim, request.name, sub.name, sub, sub=True) for sub in request.first_available)
        if not self.features.prioritized_list:
            text = f", request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
            wants[0].problem = Problem(text, claim)
        return RequestWant(request.name, wants, True)

    def _want(
        self, claim: int, request: str, short: str, spec: ExactDeviceRequest | DeviceSubRequest, *, sub: bool = False
    ) -> Want:
        admin = spec.admin_access if isinstance(spec, ExactDeviceRequest) else None
        want = Want(
            index=len(self.wants),
            claim=claim,
            request=request,
            name=f"{request}/{short}" if sub else request,
            class_name=spec.device_class_name,
            takes_all=spec.allocation_mode == ALLOCATION_MODE_ALL,
            count=spec.count,
            admin=bool(admin),
            tolerations=spec.tolerations,
            capacity=spec.capacity.requests if spec.capacity is not None else {},
        )
        self.wants.append(want)
        text = self._problem_of(want, spec, admin, "subrequest" if sub else "request", short)
        if text:
            want.problem = Problem(text, claim)
        return want

    def _problem_of(
        self,
        want: Want,
        spec: ExactDeviceRequest | DeviceSubRequest,
        admin: bool | None,
        what: str,
        short: str,
    ) -> str:
        """Check a request in upstream's order (rules/devices §8.3) and prepare its selectors; "" when it is right."""
        if want.capacity and not self.features.consumable_capacity:
            return f", {what} {short}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
        for number, selector in enumerate(spec.selectors):
            if selector.cel is None:
                return f", request {short}, selector #{number}: CEL expression empty (unsupported selector type?)"
        if admin is not None and not self.features.admin_access:
            return f", request {short}: admin access is requested, but the feature is disabled"
        if not want.class_name:
            return f", request {short}: missing device class name (unsupported request type?)"
        found = self.classes.setdefault(want.class_name, self._lookup(want.class_name))
        if found is None:
            missing = f'deviceclass.resource.k8s.io "{want.class_name}" not found'
            return f", request {short}: could not retrieve device class {want.class_name}: {missing}"
        if not want.takes_all and spec.allocation_mode != ALLOCATION_MODE_EXACT_COUNT:
            return f", request {short}: unsupported count mode {spec.allocation_mode}"
        want.class_selectors = self._compiled(found.spec.selectors)
        want.selectors = self._compiled(spec.selectors)
        return ""

    def _compiled(self, selectors: Sequence[DeviceSelector]) -> tuple[Selector, ...]:
        return tuple(self._selectors.selector(item.cel.expression if item.cel else "") for item in selectors)

    # -- devices -----------------------------------------------------------------------------------------------

    def service(self, model: DeviceModel) -> Service:
        """Return the service of a model's devices. Equal services have the same number."""
        service = self._by_model.get(model.id)
        if service is not None:
            return service
        if self._read is None:
            service = self._service(model)
        else:
            key = model.projection(self._read)
            service = self._by_projection.get(key)
            if service is None:
                service = self._by_projection[key] = self._service(model)
        if len(self._by_model) >= MOST_REMEMBERED:
            self._by_model.clear()
            self._by_projection.clear()
            self._by_content.clear()
        self._by_model[model.id] = service
        return service

    def services(self, models: Iterable[DeviceModel]) -> Services:
        """Return the services of several models, in order. Models with equal services, as in most pools, share one
        object.
        """
        found = tuple(map(self.service, models))
        numbers = tuple([service.number for service in found])
        services = self._service_lists.get(numbers)
        if services is None:
            if len(self._service_lists) >= MOST_REMEMBERED:
                self._service_lists.clear()
            services = self._service_lists[numbers] = Services(numbers, found)
        return services

    @cached_property
    def _read(self) -> tuple[tuple[str, str], ...] | None:
        """Attributes that selectors and constraints read, as (domain, ID) pairs; None when they are unknown."""
        found: set[tuple[str, str]] = set()
        for want in self.wants:
            for selector in (*want.class_selectors, *want.selectors):
                if selector.attributes is None:
                    return None
                found.update(selector.attributes)
        for name in self.attributes:
            domain, slash, key = name.partition("/")
            if not slash:
                return None
            found.add((domain, key))
        return tuple(sorted(found))

    def _service(self, model: DeviceModel) -> Service:
        selects = tuple(self._selects(want, model) for want in self.wants)
        if not any(selects):
            # Such a device serves nothing. While it is allocated, it uses counters; the pool's state includes that.
            return Service(self._number(None), model, selects, (), (), {})
        tolerates = tuple(all(tolerated(taint, want.tolerations) for taint in model.taints) for want in self.wants)
        consumption = tuple(self._consumption(want, model) for want in self.wants)
        attributes = {name: attribute_of(model, name) for name in self.attributes}
        content = (
            selects,
            tolerates,
            tuple(None if item is None else tuple(item.items()) for item in consumption),
            tuple(sorted((name, entry.value) for name, entry in model.capacity.items())),
            tuple(attributes.values()),
            model.shared,
            model.consumes,
        )
        return Service(self._number(content), model, selects, tolerates, consumption, attributes)

    def _number(self, content: Hashable) -> int:
        number = self._by_content.get(content)
        if number is None:
            number = self._by_content[content] = next(self._numbers)
        return number

    def _selects(self, want: Want, model: DeviceModel) -> bool | Problem:
        if want.problem is not None:
            return False
        if model.has_binding_conditions and not self.features.device_binding_and_status and not self._is_stable:
            return False
        for where, selectors in ((None, want.class_selectors), (want.claim, want.selectors)):
            for number, selector in enumerate(selectors):
                result = selector.result(model)
                if isinstance(result, SelectorError):
                    text = f": selector #{number}: {result}"
                    return Problem(f"class {want.class_name}{text}" if where is None else text, where)
                if not result:
                    return False
        return True

    @property
    def _is_stable(self) -> bool:
        """True if upstream uses its "stable" allocator, which ignores binding conditions."""
        return not (self.features.device_binding_and_status or self.features.consumable_capacity)

    def _consumption(self, want: Want, model: DeviceModel) -> dict[str, Amount] | None:
        if not self.features.consumable_capacity:
            return {}
        try:
            return consumption_of(model, want.capacity)
        except QuantityError:
            return None


#: Score of the first request of a list.
_BEST: Final = 8
_ENCODER: Final = msgspec.json.Encoder()


def content_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Key that is equal for claims with equal requests and constraints."""
    return _ENCODER.encode([(claim.spec.devices.requests, claim.spec.devices.constraints) for claim in claims])


def shape_key(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass | None]) -> bytes:
    """Key that is equal for claims if they differ only in class names and the classes have equal selectors."""
    selectors = {name: found.spec.selectors if found is not None else name for name, found in classes.items()}

    def shape(asked: ExactDeviceRequest | DeviceSubRequest | None) -> Any:
        if asked is None:
            return None
        return selectors.get(asked.device_class_name), msgspec.structs.replace(asked, device_class_name="")

    return _ENCODER.encode(
        [
            (
                [
                    (request.name, shape(request.exactly), [shape(sub) for sub in request.first_available])
                    for request in claim.spec.devices.requests
                ],
                claim.spec.devices.constraints,
            )
            for claim in claims
        ]
    )
