"""Services: their cluster IPs and node ports.

Addresses come in order from the ranges of a default cluster; no two Services hold the same. Caller:
``store``, on create and update. Rules: upstream ``pkg/registry/core/service``, single stack.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, ip_address
from typing import Any, Final, Generic, TypeVar

from kubesched.api.kinds import SERVICES
from kubesched.api.wire import ApiError

from ..schema import Stored
from .formats import IP_TEXT
from .validation import Causes

__all__ = ["ServiceAddresses"]

Data = dict[str, Any]
T = TypeVar("T")

#: Range of kube-apiserver's ``--service-cluster-ip-range`` under kubeadm.
_NETWORK: Final = IPv4Network("10.96.0.0/12")
_ASKED_FOR: Final = 256
_NODE_PORTS: Final = range(30_000, 32_768)
_WITH_NODE_PORTS: Final = ("LoadBalancer", "NodePort")


class _Pool(Generic[T]):
    """Pool of ``count`` values, each held by at most one Service. ``value`` returns the value with a number."""

    def __init__(self, what: str, count: int, value: Callable[[int], T]) -> None:
        self._what = what
        self._count = count
        self._value = value
        self._next = 0
        self.used: set[T] = set()

    def free(self, also_used: set[T]) -> T:
        """Return the next value that no Service holds.

        Raises:
            ApiError: 500, when there is none.
        """
        for _ in range(self._count):
            value = self._value(self._next)
            self._next = (self._next + 1) % self._count
            if value not in self.used and value not in also_used:
                return value
        text = f"Internal error occurred: failed to allocate a {self._what}: range is full"
        raise ApiError(500, "InternalError", text)


class ServiceAddresses:
    """The cluster IPs and node ports of one store's Services."""

    def __init__(self) -> None:
        count = _NETWORK.num_addresses - 2 - _ASKED_FOR
        self._ips: _Pool[str] = _Pool("serviceIP", count, lambda number: str(_NETWORK[1 + _ASKED_FOR + number]))
        self._ports: _Pool[int] = _Pool("nodePort", len(_NODE_PORTS), _NODE_PORTS.__getitem__)

    def changed(self, item: Stored | None, old: Stored | None) -> None:
        """Note the values that a Service holds now. Called for every change of the store."""
        if old is not None and old.kind is SERVICES:
            self._ips.used -= _ips_of(old)
            self._ports.used -= _ports_of(old)
        if item is not None and item.kind is SERVICES:
            self._ips.used |= _ips_of(item)
            self._ports.used |= _ports_of(item)

    def assign(self, data: Data, old: Stored | None, causes: Causes) -> None:
        """Check the spec of a Service, and fill in missing addresses. Addresses that it had stay."""
        spec: Data = data["spec"]
        if spec["type"] == "ExternalName":
            if not spec.get("externalName"):
                causes.required("spec.externalName")
            causes.check_format("subdomain", "spec.externalName", (spec.get("externalName") or "").removesuffix("."))
            if (spec.get("clusterIP") or spec.get("clusterIPs")) and not (old and _ips_of(old)):
                causes.forbidden("spec.clusterIPs", "may not be set when `type` is 'ExternalName'")
            for field in ("clusterIP", "clusterIPs"):
                spec.pop(field, None)
        else:
            self._cluster_ip(spec, _spec_of(old).get("clusterIP") or "", causes)
        self._node_ports(spec, old, causes)

    def _cluster_ip(self, spec: Data, held: str, causes: Causes) -> None:
        given: list[str] = list(spec.get("clusterIPs") or ())
        wanted = spec.get("clusterIP") or (given[0] if given else "")
        if not wanted:
            wanted = held or ("" if causes else self._ips.free(set()))
        elif held and wanted != held:
            causes.invalid("spec.clusterIPs[0]", wanted, "may not change once set")
        elif given and given[0] != wanted:
            causes.invalid("spec.clusterIPs[0]", given[0], "first value must match `clusterIP`")
        elif len(given) > 1:
            causes.invalid("spec.clusterIPs", given, "may only hold one value: the cluster has one IP family")
        elif wanted not in (held, "None"):
            self._check_ip(wanted, causes)
        spec["clusterIP"], spec["clusterIPs"] = wanted, [wanted]

    def _check_ip(self, wanted: str, causes: Causes) -> None:
        try:
            address = ip_address(wanted)
        except ValueError:
            causes.invalid("spec.clusterIPs[0]", wanted, IP_TEXT)
            return
        failed = f"failed to allocate IP {wanted}: "
        if address.version != 4:
            causes.invalid("spec.clusterIPs[0]", wanted, "expected an IPv4 value as indicated by `ipFamilies[0]`")
        elif address not in _NETWORK or address in (_NETWORK.network_address, _NETWORK.broadcast_address):
            text = f"the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {_NETWORK}"
            causes.invalid("spec.clusterIPs", [wanted], failed + text)
        elif wanted in self._ips.used:
            causes.invalid("spec.clusterIPs", [wanted], f"{failed}provided IP is already allocated")

    def _node_ports(self, spec: Data, old: Stored | None, causes: Causes) -> None:
        held = _ports_of(old) if old is not None else set()
        ports: list[Data] = spec.get("ports") or []
        if spec["type"] not in _WITH_NODE_PORTS:
            for field in ("allocateLoadBalancerNodePorts", "externalTrafficPolicy"):
                if spec.pop(field, None) is not None and old is None:
                    causes.invalid(f"spec.{field}", "", "may only be set for externally-accessible services")
            for index, port in enumerate(ports):
                if port.get("nodePort") and port.pop("nodePort") not in held:
                    causes.forbidden(
                        f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP' or 'ExternalName'"
                    )
            return
        taken: set[int] = set()
        for index, port in enumerate(ports):
            number = port.get("nodePort")
            if not number:
                continue
            path = f"spec.ports[{index}].nodePort"
            if number not in _NODE_PORTS and number not in held:
                ends = f"{_NODE_PORTS[0]}-{_NODE_PORTS[-1]}"
                text = f"provided port is not in the valid range. The range of valid ports is {ends}"
                causes.invalid(path, number, text)
            elif number in taken or (number in self._ports.used and number not in held):
                causes.invalid(path, number, "provided port is already allocated")
            taken.add(number)
        if causes or spec.get("allocateLoadBalancerNodePorts") is False:
            return
        before = {port["port"]: port.get("nodePort") for port in _spec_of(old).get("ports") or ()}
        for port in ports:
            if not port.get("nodePort"):
                kept = before.get(port["port"])
                port["nodePort"] = kept if kept and kept not in taken else self._ports.free(taken)
                taken.add(port["nodePort"])


def _spec_of(item: Stored | None) -> Data:
    return (item.section("spec") or {}) if item is not None else {}


def _ips_of(item: Stored) -> set[str]:
    ip = _spec_of(item).get("clusterIP")
    return {ip} if ip and ip != "None" else set()


def _ports_of(item: Stored) -> set[int]:
    return {port["nodePort"] for port in _spec_of(item).get("ports") or () if port.get("nodePort")}
