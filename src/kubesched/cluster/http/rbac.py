"""Role-based access control, by the stored Roles, ClusterRoles and their bindings.

    user, groups ──▶ their bindings ──▶ roles of the bindings ──▶ a matching rule: allowed; no matching rule: refused

Each object is read once after it changes. Objects may be hostile: a decision evaluates at most ``MOST_PARTS`` parts of
them; beyond that it refuses and says so. Source of the rules: the Kubernetes documentation "Using RBAC Authorization".
Caller: :mod:`.access`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubesched.api.kinds import Kind, kind_by_plural
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector

from ..schema import Stored
from ..store import Store
from .users import MASTERS, User, account_name

__all__ = ["EVERY_RULE", "MOST_PARTS", "Attributes", "Decision", "RoleAuthorizer", "Rule"]

GROUP: Final = "rbac.authorization.k8s.io"
#: Most parts that one decision evaluates: bindings, rules, and the words in them.
MOST_PARTS: Final = 50_000
#: Most decisions that are remembered until a role or a binding changes, and most characters of a request in one.
_REMEMBERED: Final = 4096
_SHORT: Final = 1024
#: Most roles that a refusal names because they are missing or unreadable.
_MOST_PROBLEMS: Final = 5


def _rbac_kind(plural: str) -> Kind:
    kind = kind_by_plural(GROUP, plural)
    assert kind is not None
    return kind


_ROLES, _CLUSTER_ROLES = _rbac_kind("roles"), _rbac_kind("clusterroles")
_BINDINGS, _CLUSTER_BINDINGS = _rbac_kind("rolebindings"), _rbac_kind("clusterrolebindings")


class Attributes(NamedTuple):
    """Request as rules see it.

    ``path`` is set for a request on no resource. Such a request has only a path and a verb.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Decision about a request, and the reason: the binding that allows it, or the error that stopped the search."""

    allowed: bool
    reason: str = ""


# -- roles -------------------------------------------------------------------------------------------------


class Rule(msgspec.Struct, rename="camel", frozen=True):
    """Rule of a role. Empty ``resource_names`` stand for all names."""

    verbs: frozenset[str] = frozenset()
    api_groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    resource_names: frozenset[str] = frozenset()
    non_resource_urls: frozenset[str] = msgspec.field(default=frozenset(), name="nonResourceURLs")

    @property
    def parts(self) -> int:
        """Number of parts that count towards ``MOST_PARTS``."""
        words = (self.verbs, self.api_groups, self.resources, self.resource_names, self.non_resource_urls)
        return 1 + sum(map(len, words))

    def allows(self, wanted: Attributes) -> bool:
        """True if the rule matches a request."""
        if not ("*" in self.verbs or wanted.verb in self.verbs):
            return False
        if wanted.path:
            return any(_covers(url, wanted.path) for url in self.non_resource_urls)
        if not ("*" in self.api_groups or wanted.group in self.api_groups):
            return False
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        found = "*" in self.resources or resource in self.resources
        if not found and wanted.subresource:
            found = f"*/{wanted.subresource}" in self.resources
        return found and (not self.resource_names or wanted.name in self.resource_names)

    def to_data(self) -> dict[str, Any]:
        """Return the rule in the form of a rules review."""
        if self.non_resource_urls:
            return {"verbs": sorted(self.verbs), "nonResourceURLs": sorted(self.non_resource_urls)}
        data = {"verbs": self.verbs, "apiGroups": self.api_groups, "resources": self.resources}
        named = {"resourceNames": self.resource_names} if self.resource_names else {}
        return {key: sorted(values) for key, values in {**data, **named}.items()}


_EVERY: Final = frozenset("*")
#: Rules that allow everything.
EVERY_RULE: Final = (Rule(_EVERY, _EVERY, _EVERY), Rule(_EVERY, non_resource_urls=_EVERY))


def _covers(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))


class _Aggregation(msgspec.Struct, rename="camel"):
    cluster_role_selectors: list[LabelSelector] | None = None


class _RoleForm(msgspec.Struct, rename="camel"):
    rules: list[Rule] | None = None
    aggregation_rule: _Aggregation | None = None


class _Role(NamedTuple):
    rules: Sequence[Rule]
    selectors: Sequence[Selector]
    labels: Mapping[str, str]


def _read_role(item: Stored) -> _Role:
    form = msgspec.convert(item.data(), _RoleForm)
    wanted = form.aggregation_rule.cluster_role_selectors if form.aggregation_rule is not None else None
    return _Role(form.rules or (), [compile_label_selector(one) for one in wanted or ()], item.labels)


# -- bindings ----------------------------------------------------------------------------------------------


class _Reference(msgspec.Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _BindingForm(msgspec.Struct, rename="camel"):
    role_ref: _Reference
    subjects: list[_Reference] | None = None


#: Subject of a binding: namespace where it holds ("" for all), User or Group, and name.
_Subject = tuple[str, str, str]


class _Binding(NamedTuple):
    """Binding of a role. ``shown`` names the binding and its role in the reason of a decision."""

    role: tuple[str, str, str]
    shown: str
    subjects: Mapping[_Subject, str]


def _read_binding(item: Stored) -> _Binding:
    form = msgspec.convert(item.data(), _BindingForm)
    ref, subjects = form.role_ref, {}
    for one in form.subjects or ():
        kind, name, shown = one.kind, one.name, f'{one.kind} "{one.name}"'
        if kind == "ServiceAccount":
            namespace = one.namespace or item.namespace
            if not namespace:
                continue
            kind, name, shown = "User", account_name(namespace, name), f'{kind} "{name}/{namespace}"'
        subjects[item.namespace, kind, name] = shown
    place = f"{item.name}/{item.namespace}" if item.namespace else item.name
    shown = f'{item.kind.kind} "{place}" of {ref.kind} "{ref.name}"'
    return _Binding((ref.kind, item.namespace if ref.kind == "Role" else "", ref.name), shown, subjects)


# -- what is stored ----------------------------------------------------------------------------------------


class _Index:
    """Roles by name, and bindings by subject. A role is decoded when it is first needed."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str, str], Stored] = {}
        self._cluster_roles: dict[tuple[str, str, str], Stored] = {}
        self._roles: dict[tuple[str, str, str], _Role | None] = {}
        self._bindings: dict[tuple[str, str], _Binding] = {}
        self._of: dict[_Subject, dict[tuple[str, str], _Binding]] = {}

    def change(self, kind: Kind, key: tuple[str, str], item: Stored | None) -> None:
        """Adopt the new state of an object; None when it is gone."""
        if kind in (_ROLES, _CLUSTER_ROLES):
            role = (kind.kind, *key)
            self._roles.pop(role, None)
            for items in (self._items, self._cluster_roles) if kind == _CLUSTER_ROLES else (self._items,):
                if item is None:
                    items.pop(role, None)
                else:
                    items[role] = item
            return
        old = self._bindings.pop(key, None)
        for subject in old.subjects if old is not None else ():
            found = self._of[subject]
            del found[key]
            if not found:
                del self._of[subject]
        try:
            new = _read_binding(item) if item is not None else None
        except msgspec.ValidationError:
            return  # from a saved cluster; a request cannot write such a binding
        if new is not None:
            self._bindings[key] = new
            for subject in new.subjects:
                self._of.setdefault(subject, {})[key] = new

    def bindings(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """Yield the bindings of a user that hold in a namespace, each with the name of its subject (user or group).

        Bindings for the whole cluster come first.
        """
        for place in dict.fromkeys(("", namespace)):
            for kind, name in (("User", user.name), *(("Group", group) for group in user.groups)):
                for binding in self._of.get((place, kind, name), {}).values():
                    yield binding, binding.subjects[place, kind, name]

    def role(self, key: tuple[str, str, str]) -> _Role | None:
        """Return a role; None when it is missing or unreadable."""
        if key not in self._roles and key in self._items:
            try:
                self._roles[key] = _read_role(self._items[key])
            except (msgspec.ValidationError, SelectorError):
                self._roles[key] = None
        return self._roles.get(key)

    def cluster_roles(self) -> Iterator[tuple[tuple[str, str, str], Mapping[str, str]]]:
        """Yield the keys and labels of all ClusterRoles."""
        return ((key, item.labels) for key, item in self._cluster_roles.items())


# -- decisions ---------------------------------------------------------------------------------------------


class _OutOfBoundsError(Exception):
    """The roles of a user have more parts than a decision may evaluate."""


class _Search:
    """Walk through the rules of a user, with its remaining budget and the problems found so far."""

    def __init__(self, index: _Index) -> None:
        self._index = index
        self._left = MOST_PARTS
        self.problems: list[str] = []

    def rules(self, user: User, namespace: str) -> Iterator[tuple[Rule, str]]:
        """Yield the rules of a user that hold in a namespace, each with a text that names binding and subject.

        Raises:
            _OutOfBoundsError: when the budget is spent.
        """
        for binding, subject in self._index.bindings(user, namespace):
            self._spend()
            shown = f"{binding.shown} to {subject}"
            for rule in self._of_role(binding.role):
                yield rule, shown

    def _of_role(self, key: tuple[str, str, str]) -> Iterator[Rule]:
        """Yield the rules of a role, and of the roles that it aggregates."""
        found, walked = [key], {key}
        for one in found:
            role = self._index.role(one)
            if role is None:
                if len(self.problems) < _MOST_PROBLEMS:
                    self.problems.append(f'{one[0].lower()}.{GROUP} "{one[2]}" not found')
                continue
            for rule in role.rules:
                self._spend(rule.parts)
                yield rule
            if not role.selectors:
                continue
            terms = sum(1 + len(selector.requirements) for selector in role.selectors)
            for other, labels in self._index.cluster_roles():
                self._spend(terms)
                if other not in walked and any(selector.matches(labels) for selector in role.selectors):
                    walked.add(other)
                    found.append(other)  # evaluated later in this loop

    def _spend(self, parts: int = 1) -> None:
        self._left -= parts
        if self._left < 0:
            raise _OutOfBoundsError


class RoleAuthorizer:
    """Authorizer by the roles and bindings of one store. Before each decision it adopts the changes of these
    objects.
    """

    def __init__(self, store: Store) -> None:
        self._tables = [store.table(kind) for kind in (_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS)]
        self._seen = [-1] * len(self._tables)
        self._index = _Index()
        self._known: dict[tuple[str, tuple[str, ...], Attributes], Decision] = {}

    def _follow(self) -> None:
        """Adopt changes of roles and bindings. Costs four comparisons when there are none."""
        ends = [table.end for table in self._tables]
        if ends == self._seen:
            return
        self._known.clear()
        changes = [
            table.since(seen) if seen >= 0 else None for table, seen in zip(self._tables, self._seen, strict=True)
        ]
        self._seen = ends
        if None in changes:
            self._index = _Index()
        for table, new in zip(self._tables, changes, strict=True):
            known = ((change.item.namespace, change.item.name) for change in new or ())
            for key in dict.fromkeys(table.objects if None in changes else known):
                self._index.change(table.kind, key, table.objects.get(key))

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Decide if a user may make a request. The group ``system:masters`` may do everything."""
        if MASTERS in user.groups:
            return Decision(True)
        self._follow()
        key = (user.name, user.groups, wanted)
        known = self._known.get(key)
        if known is None:
            known = self._decide(user, wanted)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(user.name) + sum(map(len, user.groups)) + sum(map(len, wanted)) <= _SHORT:
                self._known[key] = known
        return known

    def _decide(self, user: User, wanted: Attributes) -> Decision:
        search = _Search(self._index)
        try:
            for rule, shown in search.rules(user, wanted.namespace):
                if rule.allows(wanted):
                    return Decision(True, f"RBAC: allowed by {shown}")
        except _OutOfBoundsError:
            text = f"RBAC: the roles of this user have more than {MOST_PARTS} parts; the others were not evaluated"
            return Decision(False, text)
        problems = search.problems
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        return Decision(False, f"RBAC: {text}" if problems else "")

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """Return the rules of a user in a namespace and the cluster, and the reason if the list is incomplete."""
        if MASTERS in user.groups:
            return list(EVERY_RULE), ""
        self._follow()
        search = _Search(self._index)
        found: list[Rule] = []
        try:
            found += (rule for rule, _ in search.rules(user, namespace))
        except _OutOfBoundsError:
            return found, f"the roles of this user have more than {MOST_PARTS} parts"
        return found, ", ".join(search.problems)
