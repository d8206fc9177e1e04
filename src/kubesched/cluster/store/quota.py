"""ResourceQuota: what a namespace may ask for in sum. Checked when something is created, kept in ``status.used``.

Only namespaces that have a quota cost anything. Use is counted exactly, object by object, so that a quota is never
exceeded however late its status is written. Counted: pods and their requests and limits, claims and their storage,
and ``count/<resource>``. Rules and texts: upstream ``apiserver/admission/plugin/resourcequota`` and ``quota/v1``.
Caller: ``store``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ...api.kinds import CLAIMS, PODS, RESOURCE_QUOTAS, Kind
from ...api.quantity import QuantityError, parse_quantity
from ...api.requests import is_extended_resource, pod_limit_amounts, pod_request_amounts
from ...api.types import Pod
from ..admission import forbidden, show_amount
from ..schema import Document, Stored, encode, open_section
from .records import Records

__all__ = ["Quotas"]


#: Kinds that are counted under their bare name too.
_BARE: Final = frozenset({"services", "secrets", "configmaps", "replicationcontrollers", "resourcequotas"})
#: Resources that every container must ask for once they are limited.
_MUST_ASK: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")

Amounts = dict[str, int]


class _Quota:
    """One quota: what it limits, whom it is for, and what is used."""

    def __init__(self, item: Stored) -> None:
        spec = item.section("spec") or {}
        self.key = (item.namespace, item.name)
        self.uid = item.uid
        self.hard: Amounts = {name: _nanos(text) for name, text in (spec.get("hard") or {}).items()}
        self.scopes = tuple(_scopes(spec))
        self.used: Amounts = dict.fromkeys(self.hard, 0)

    def covers(self, pod: Pod | None) -> bool:
        """Whether an object counts; scopes are about pods only, and a quota with scopes counts nothing else."""
        if pod is None:
            return not self.scopes
        return all(scope(pod) for scope in self.scopes)

    def add(self, amounts: Amounts, sign: int) -> bool:
        """Count amounts in or out; whether anything changed."""
        changed = False
        for name, amount in amounts.items():
            if name in self.used and amount:
                self.used[name] += sign * amount
                changed = True
        return changed


def _scopes(spec: Mapping[str, Any]) -> Iterable[Callable[[Pod], bool]]:
    for scope in spec.get("scopes") or ():
        yield _scope(scope, "Exists", ())
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield _scope(term.get("scopeName", ""), term.get("operator", "Exists"), tuple(term.get("values") or ()))


def _scope(name: str, operator: str, values: tuple[str, ...]) -> Callable[[Pod], bool]:
    if name in ("BestEffort", "NotBestEffort"):
        return lambda pod: _is_best_effort(pod) is (name == "BestEffort")
    if name == "PriorityClass":
        return lambda pod: _matches(pod.spec.priority_class_name, operator, values)
    if name == "CrossNamespacePodAffinity":
        return _crosses_namespaces
    # activeDeadlineSeconds is not kept in the typed form, and nothing here ends pods by it.
    return lambda pod: name != "Terminating"


def _matches(value: str, operator: str, values: tuple[str, ...]) -> bool:
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return bool(value) is (operator == "Exists")


def _is_best_effort(pod: Pod) -> bool:
    return not any(item.resources.requests or item.resources.limits for item in _containers(pod))


def _crosses_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    terms = [
        term
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if side is not None
        for term in (*side.required, *(weighted.pod_affinity_term for weighted in side.preferred))
    ]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


# -- measuring ---------------------------------------------------------------------------------------------


def _nanos(text: Any) -> int:
    try:
        return parse_quantity(text).nanos
    except QuantityError:
        return 0


def _containers(pod: Pod) -> tuple[Any, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _measure_pod(pod: Pod) -> Amounts:
    one = 10**9
    amounts: Amounts = {"count/pods": one}
    if pod.status.phase in ("Succeeded", "Failed"):
        return amounts
    amounts["pods"] = one
    for name, amount in pod_request_amounts(pod).items():
        amounts[f"requests.{name}"] = amount.nanos
        if not is_extended_resource(name):
            amounts[name] = amount.nanos
    for name, amount in pod_limit_amounts(pod).items():
        if name in _PLAIN:
            amounts[f"limits.{name}"] = amount.nanos
    return amounts


def _measure(item: Stored) -> tuple[Amounts, Pod | None]:
    """What an object uses, and the pod it is, if it is one."""
    if item.kind == PODS:
        pod: Pod = item.typed
        return _measure_pod(pod), pod
    one = 10**9
    amounts: Amounts = {f"count/{item.kind.group_resource}": one}
    if item.kind.group_resource in _BARE:
        amounts[item.kind.plural] = one
    if item.kind == CLAIMS:
        spec = item.section("spec") or {}
        storage = _nanos(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))
        amounts["persistentvolumeclaims"], amounts["requests.storage"] = one, storage
        if spec.get("storageClassName"):
            prefix = f"{spec['storageClassName']}.storageclass.storage.k8s.io/"
            amounts[f"{prefix}persistentvolumeclaims"], amounts[f"{prefix}requests.storage"] = one, storage
    return amounts, None


class Quotas:
    """The quotas of one store and what they have counted."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._by_namespace: dict[str, dict[str, _Quota]] = {}
        self._stale: dict[tuple[str, str], None] = {}
        #: Whether there has been a quota: what is created and removed is counted then.
        self._counts = False

    # -- admission -------------------------------------------------------------------------------------

    def is_free(self, namespace: str) -> bool:
        """Whether a namespace has no quota."""
        return namespace not in self._by_namespace

    def admit(self, kind: Kind, document: Document, old: Stored | None = None) -> None:
        """Refuse what would exceed a quota of its namespace.

        Raises:
            ApiError: 403, naming the first quota that is exceeded, with what was asked, used and allowed.
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
            if not quota.covers(pod):
                continue
            if pod is not None and old is None:
                self._check_asked(quota, pod, probe)
            over = sorted(
                name
                for name, amount in delta.items()
                if amount > 0 and name in quota.hard and quota.used[name] + amount > quota.hard[name]
            )
            if over:
                texts = [
                    ",".join(f"{name}={show_amount(name, source.get(name, 0))}" for name in over)
                    for source in (delta, quota.used, quota.hard)
                ]
                why = f"exceeded quota: {quota.key[1]}, requested: {texts[0]}, used: {texts[1]}, limited: {texts[2]}"
                raise forbidden(kind, probe.name, why)

    @staticmethod
    def _check_asked(quota: _Quota, pod: Pod, probe: Stored) -> None:
        missing: list[str] = []
        whole = pod.spec.resources
        for name in sorted(set(_MUST_ASK) & quota.hard.keys()):
            bare = name.rpartition(".")[2]
            limits = name.startswith("limits.")
            if whole is not None and bare in (whole.limits if limits else whole.requests):
                continue
            without = sorted(
                item.name
                for item in _containers(pod)
                if bare not in (item.resources.limits if limits else item.resources.requests)
            )
            if without:
                missing.append(f"{name} for: {','.join(without)}")
        if missing:
            raise forbidden(PODS, probe.name, f"failed quota: {quota.key[1]}: must specify {'; '.join(missing)}")

    # -- counting --------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Begin with the quotas; with what they count when there is the first one."""
        self._records.follow(self.changed, RESOURCE_QUOTAS.__eq__)

    def changed(self, item: Stored | None, old: Stored | None) -> None:
        """Note a stored or removed quota."""
        self._begin()
        self._quota_changed(item, old)
        if item is None or old is None:
            self._count(item, old)

    def resume(self) -> None:
        """Begin with the quotas of a saved cluster. All that they count is there already, the other quotas too."""
        for item in list(self._records.table(RESOURCE_QUOTAS).objects.values()):
            self._begin()
            self._quota_changed(item, None)

    def _begin(self) -> None:
        """Count from now on what is created and removed: there is a quota."""
        if not self._counts:
            self._counts = True
            self._records.follow(self._count, lambda kind: kind.namespaced and kind != RESOURCE_QUOTAS)

    def _count(self, item: Stored | None, old: Stored | None) -> None:
        """Note a stored or removed object."""
        subject = item or old
        quotas = self._by_namespace.get(subject.namespace) if subject is not None else None
        if not quotas:
            return
        for one, sign in ((old, -1), (item, 1)):
            if one is None:
                continue
            amounts, pod = _measure(one)
            for quota in quotas.values():
                if one.uid != quota.uid and quota.covers(pod) and quota.add(amounts, sign):
                    self._mark(quota)

    def _quota_changed(self, item: Stored | None, old: Stored | None) -> None:
        subject = item or old
        assert subject is not None
        quotas = self._by_namespace.setdefault(subject.namespace, {})
        if item is None:
            quotas.pop(subject.name, None)
            if not quotas:
                del self._by_namespace[subject.namespace]
            return
        if old is not None and old.section("spec") == item.section("spec"):
            return
        quota = quotas[item.name] = _Quota(item)
        for kind, table in self._records.tables.items():
            if kind.namespaced and kind == table.kind:
                for one in table.items(item.namespace):
                    amounts, pod = _measure(one)
                    if quota.covers(pod):
                        quota.add(amounts, 1)
        self._mark(quota)

    # -- status ----------------------------------------------------------------------------------------

    def _mark(self, quota: _Quota) -> None:
        if not self._stale:
            self._records.defer(self._write)
        self._stale[quota.key] = None

    def _write(self) -> Iterator[None]:
        """Bring the status of changed quotas up to date, once for many changes."""
        stale, self._stale = self._stale, {}
        table = self._records.table(RESOURCE_QUOTAS)
        for key in stale:
            item = table.objects.get(key)
            quota = self._by_namespace.get(key[0], {}).get(key[1])
            if item is None or quota is None:
                continue
            document = item.document()
            spec = open_section(document, "spec") or {}
            used = {name: show_amount(name, amount) for name, amount in quota.used.items()}
            status = {"hard": dict(spec.get("hard") or {}), "used": used}
            if open_section(document, "status") != status:
                document["status"] = status
                self._records.commit(table, document, item)
            yield
