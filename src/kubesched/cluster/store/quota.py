"""ResourceQuota: bounds on the sum of a namespace's objects. Checked on create, use kept in ``status.used``.

Only namespaces that have a quota cost anything. Use is counted exactly, object by object, so a quota is never exceeded
even if its status is written late. Counted are pods (:mod:`kubesched.api.quotas`), claims with their storage, and
``count/<resource>``. Texts: upstream ``apiserver/admission/plugin/resourcequota``. Caller: ``store``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubesched.api.kinds import CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES, Kind
from kubesched.api.quotas import ONE, Amounts, QuotaRules, nanos, pod_use
from kubesched.api.types import Pod

from ..admission import forbidden, show_amount
from ..schema import Document, Stored, encode, open_section
from .records import Records

__all__ = ["Quotas"]

#: Kinds that are counted under their bare name too.
_BARE: Final = frozenset({"services", "secrets", "configmaps", "replicationcontrollers", "resourcequotas"})


class _Quota(QuotaRules):
    """Quota: its limits, its scopes, and its use."""

    def __init__(self, item: Stored) -> None:
        super().__init__(item.section("spec") or {})
        self.key = (item.namespace, item.name)
        self.uid = item.uid
        self.used: Amounts = dict.fromkeys(self.hard, 0)

    def counts(self, item: Stored, pod: Pod | None) -> bool:
        """True if an object counts; ``pod`` is its typed form if it is a pod."""
        ends = pod is not None and b'"activeDeadlineSeconds"' in item.raw
        return self.covers(pod, ends=ends and "activeDeadlineSeconds" in (item.section("spec") or {}))

    def add(self, amounts: Amounts, sign: int) -> bool:
        """Add amounts (``sign`` 1) or subtract them (-1). Returns True if the use changed."""
        changed = {name: sign * amount for name, amount in amounts.items() if name in self.used and amount}
        for name, amount in changed.items():
            self.used[name] += amount
        return bool(changed)


def _measure(item: Stored) -> tuple[Amounts, Pod | None]:
    """Return the use of an object, and the typed pod if it is a pod."""
    if item.kind == PODS:
        pod: Pod = item.typed
        return pod_use(pod), pod
    amounts: Amounts = {f"count/{item.kind.group_resource}": ONE}
    if item.kind.group_resource in _BARE:
        amounts[item.kind.plural] = ONE
    if item.kind == SERVICES:
        spec = item.section("spec") or {}
        ports, balanced = spec.get("ports") or (), spec.get("type") == "LoadBalancer"
        if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        amounts["services.loadbalancers"] = balanced * ONE
        amounts["services.nodeports"] = (balanced or spec.get("type") == "NodePort") * len(ports) * ONE
    if item.kind == CLAIMS:
        spec = item.section("spec") or {}
        storage = nanos(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))
        class_name = spec.get("storageClassName")
        for prefix in ("", f"{class_name}.storageclass.storage.k8s.io/") if class_name else ("",):
            amounts[f"{prefix}persistentvolumeclaims"], amounts[f"{prefix}requests.storage"] = ONE, storage
    return amounts, None


class Quotas:
    """Quotas of one store and their use."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._by_namespace: dict[str, dict[str, _Quota]] = {}
        self._stale: dict[tuple[str, str], None] = {}
        #: True once there has been a quota. Only then are created and removed objects counted.
        self._counts = False

    # -- admission -------------------------------------------------------------------------------------

    def is_free(self, namespace: str) -> bool:
        """True if a namespace has no quota."""
        return namespace not in self._by_namespace

    def admit(self, kind: Kind, document: Document, old: Stored | None = None) -> None:
        """Refuse an object that would exceed a quota of its namespace.

        Raises:
            ApiError: 403, naming the first quota that is exceeded, with the amounts requested, used and allowed.
        """
        metadata = document["metadata"]
        quotas = self._by_namespace.get(metadata.get("namespace") or "")
        if not quotas or metadata.get("deletionTimestamp"):
            return
        probe = Stored(kind, encode(document), metadata, 0)
        amounts, pod = _measure(probe)
        before = _measure(old)[0] if old is not None else {}
        delta = {name: amount - before.get(name, 0) for name, amount in amounts.items()}
        for quota in quotas.values():
            if not quota.counts(probe, pod):
                continue
            if pod is not None and old is None:
                self._check_asked(quota, pod, probe)
            over = quota.exceeded(delta, quota.used)
            if over:
                texts = [
                    ",".join(f"{name}={show_amount(name, source.get(name, 0))}" for name in over)
                    for source in (delta, quota.used, quota.hard)
                ]
                why = f"exceeded quota: {quota.key[1]}, requested: {texts[0]}, used: {texts[1]}, limited: {texts[2]}"
                raise forbidden(kind, probe.name, why)

    @staticmethod
    def _check_asked(quota: _Quota, pod: Pod, probe: Stored) -> None:
        missing = quota.unasked(pod)
        if missing:
            raise forbidden(PODS, probe.name, f"failed quota: {quota.key[1]}: must specify {'; '.join(missing)}")

    # -- counting --------------------------------------------------------------------------------------

    def changed(self, item: Stored | None, old: Stored | None) -> None:
        """Note a stored or removed quota."""
        self._quota_changed(item, old)
        if item is None or old is None:
            self._count(item, old)

    def resume(self) -> None:
        """Begin with the quotas of a saved cluster. All objects that they count are stored already."""
        for item in list(self._records.table(RESOURCE_QUOTAS).objects.values()):
            self._quota_changed(item, None)

    def _count(self, item: Stored | None, old: Stored | None) -> None:
        """Note a stored or removed object."""
        for one, sign in ((old, -1), (item, 1)):
            if one is not None and one.namespace in self._by_namespace:
                amounts, pod = _measure(one)
                for quota in self._by_namespace[one.namespace].values():
                    if one.uid != quota.uid and quota.counts(one, pod) and quota.add(amounts, sign):
                        self._mark(quota)

    def _quota_changed(self, item: Stored | None, old: Stored | None) -> None:
        if not self._counts:  # without a quota nothing is counted
            self._counts = True
            self._records.follow(self._count, lambda kind: kind.namespaced and kind != RESOURCE_QUOTAS)
        subject = item or old
        assert subject is not None
        quotas = self._by_namespace.setdefault(subject.namespace, {})
        if item is None:
            quotas.pop(subject.name, None)
            if not quotas:
                del self._by_namespace[subject.namespace]
            return
        if old is not None and old.section("spec") == item.section("spec"):
            self._mark(quotas[item.name])  # a client may have written the status
            return
        quota = quotas[item.name] = _Quota(item)
        for kind, table in self._records.tables.items():
            if kind.namespaced and kind == table.kind:
                for one in table.items(item.namespace):
                    amounts, pod = _measure(one)
                    if quota.counts(one, pod):
                        quota.add(amounts, 1)
        self._mark(quota)

    # -- status ----------------------------------------------------------------------------------------

    def _mark(self, quota: _Quota) -> None:
        if not self._stale:
            self._records.defer(self._write())
        self._stale[quota.key] = None

    def _write(self) -> Iterator[None]:
        """Write the status of changed quotas, once for many changes."""
        stale, self._stale = self._stale, {}
        items = self._records.table(RESOURCE_QUOTAS).objects
        for key in stale:
            item = items.get(key)
            quota = self._by_namespace.get(key[0], {}).get(key[1])
            if item is None or quota is None:
                continue
            document = item.document()
            spec = open_section(document, "spec") or {}
            used = {name: show_amount(name, amount) for name, amount in quota.used.items()}
            status = {"hard": dict(spec.get("hard") or {}), "used": used}
            if open_section(document, "status") != status:
                document["status"] = status
                self._records.commit(RESOURCE_QUOTAS, document, item)
            yield
