"""Authentication of requests, and authorization when the server was started with it.

    request ──▶ user, maybe an impersonated one ──▶ attributes ──▶ allowed, or 403 in upstream's words

Without authorization every user has all permissions. Callers: :mod:`.server` for each request, :mod:`.posted` for
reviews, :mod:`.calls` for writes that need further permissions.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from kubesched.api.equality import same_json
from kubesched.api.kinds import Kind, kind_by_plural
from kubesched.api.wire import ApiError

from ..store import Store
from .bootstrap import create_bootstrap_roles
from .rbac import EVERY_RULE, Attributes, Decision, RoleAuthorizer, Rule
from .users import ACCOUNTS, ADMIN, ANONYMOUS, Accounts, User, impersonated

__all__ = ["AUTHORIZATION_MODES", "Access"]

#: Values of ``--authorization-mode``: upstream's names.
AUTHORIZATION_MODES: Final = ("AlwaysAllow", "RBAC")
_OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version")
_NODE_NAME: Final = "authentication.kubernetes.io/node-name"
_CLAIM_GROUP: Final = "resource.k8s.io"
_CLAIMS: Final = kind_by_plural(_CLAIM_GROUP, "resourceclaims")


class Access:
    """Users of one server and their permissions.

    ``token`` is the token of the administrator. Without it, requests that name no user count as the administrator's
    requests. ``mode`` is one of ``AUTHORIZATION_MODES``. With RBAC the roles that every cluster has are created in the
    store.

    Raises:
        ValueError: for another mode.
    """

    def __init__(self, store: Store, token: str | None, mode: str) -> None:
        if mode not in AUTHORIZATION_MODES:
            raise ValueError(f"authorization mode {mode!r} is none of {', '.join(AUTHORIZATION_MODES)}")
        self.token = token
        self.accounts = Accounts(store, token)
        self.roles: RoleAuthorizer | None = None
        if mode == "RBAC":
            create_bootstrap_roles(store)
            self.roles = RoleAuthorizer(store)

    # -- who -----------------------------------------------------------------------------------------------

    def user_of(self, request: web.BaseRequest, path: str) -> User:
        """Return the user that makes a request. Health and version are open to everyone.

        Raises:
            ApiError: 401 for an unknown token, 403 for an impersonation that is not permitted.
        """
        user = self._authenticated(request, path)
        other = impersonated(request.headers)
        if other is None:
            return user
        self._check_impersonation(request, user, other)
        return other

    def _authenticated(self, request: web.BaseRequest, path: str) -> User:
        # Bytes that are not UTF-8 arrive as surrogates.
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.bearer(given.strip().encode("utf-8", "surrogateescape"))
        else:
            user = ADMIN if self.token is None else None
        if user is None and path.startswith(_OPEN_PATHS):
            user = ANONYMOUS
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def bearer(self, token: bytes) -> User | None:
        """Return the user of a token; None if it is not valid.

        If the server has neither a token nor authorization, any unknown token counts as the administrator's token.
        """
        if self.token is not None and hmac.compare_digest(token, self.token.encode()):
            return ADMIN
        user = self.accounts.user_of(token)
        return ADMIN if user is None and self.token is None and self.roles is None else user

    def _check_impersonation(self, request: web.BaseRequest, user: User, other: User) -> None:
        """Refuse impersonation without the verb ``impersonate`` on users, groups, uids and userextras."""
        if self.roles is None:
            return
        words = other.name.split(":")
        if other.name.startswith(ACCOUNTS) and len(words) == 4:
            self.check(user, Attributes("impersonate", "", "serviceaccounts", "", words[2], words[3]))
        else:
            self.check(user, Attributes("impersonate", "", "users", name=other.name))
        for group in request.headers.getall("Impersonate-Group", ()):
            self.check(user, Attributes("impersonate", "", "groups", name=group))
        extra = "authentication.k8s.io"
        if other.uid:
            self.check(user, Attributes("impersonate", extra, "uids", name=other.uid))
        for key, values in other.extra:
            for value in values:
                self.check(user, Attributes("impersonate", extra, "userextras", key, name=value))

    # -- what ----------------------------------------------------------------------------------------------

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Decide if a user may make a request."""
        if self.roles is not None:
            return self.roles.decide(user, wanted)
        if self.token is not None and user.name == ANONYMOUS.name:
            return Decision(False, "the embedded cluster was started with a token, and requires it")
        return Decision(True, "the embedded cluster allows everything")

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """Return the rules of a user, and the reason if the list is incomplete."""
        if self.roles is None:
            return list(EVERY_RULE), ""
        return self.roles.rules(user, namespace)

    def check_request(self, user: User, path: str, wanted: Callable[[], Attributes]) -> None:
        """Refuse a request that its user may not make. ``wanted`` is called only if roles are checked.

        Raises:
            ApiError: 403.
        """
        if self.roles is not None and not path.startswith(_OPEN_PATHS):
            self.check(user, wanted())

    def check(self, user: User, wanted: Attributes) -> None:
        """Refuse a request that a user may not make.

        Raises:
            ApiError: 403.
        """
        decision = self.decide(user, wanted)
        if not decision.allowed:
            raise _forbidden(user, wanted, decision.reason)

    # -- the status of claims ------------------------------------------------------------------------------

    def guards(self, kind: Kind, subresource: str) -> bool:
        """True if a write may need further permissions, depending on the change."""
        return self.roles is not None and kind == _CLAIMS and subresource == "status"

    def check_claim(self, user: User, verb: str, namespace: str, before: Any, after: Any) -> None:
        """Refuse a change of a claim's status that its writer may not make.

        Source: the Kubernetes documentation "Hardening Guide - Dynamic Resource Allocation", and
        ``DRAResourceClaimGranularStatusAuthorization`` of 1.36: a change of the allocation or of the reservations needs
        the verb of the request on ``resourceclaims/binding`` in all namespaces. A change of the status of a driver's
        devices needs ``arbitrary-node:VERB`` (or ``associated-node:VERB`` from the node) on ``resourceclaims/driver``
        with the driver's name.

        Raises:
            ApiError: 422, as upstream answers.
        """
        causes: list[tuple[str, str, str]] = []
        old, new = before.get("status") or {}, after.get("status") or {}
        if not all(same_json(old.get(name) or None, new.get(name) or None) for name in ("allocation", "reservedFor")):
            why = self._refusal(user, Attributes(verb, _CLAIM_GROUP, "resourceclaims", "binding"))
            needed = f'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{verb}"'
            causes += [("status", "FieldValueForbidden", f"Forbidden: {needed} permission: {why}")] if why else []
        verbs = [f"arbitrary-node:{verb}"]
        node = dict(user.extra).get(_NODE_NAME, ()) if user.name.startswith(ACCOUNTS) else ()
        if node == (_only_node(new.get("allocation")),):
            verbs.insert(0, f"associated-node:{verb}")
        for driver in sorted(_changed_drivers(old, new)):
            wanted = [Attributes(one, _CLAIM_GROUP, "resourceclaims", "driver", namespace, driver) for one in verbs]
            refusals = [self._refusal(user, one) for one in wanted]
            if all(refusals):
                needed = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
                )
                text = f"Forbidden: {needed} permission: {refusals[0]}"
                causes.append(("status.devices", "FieldValueForbidden", text))
        if causes:
            assert _CLAIMS is not None
            raise ApiError.invalid(_CLAIMS, after["metadata"]["name"], causes)

    def _refusal(self, user: User, wanted: Attributes) -> str:
        """Return the reason why a user may not make a request; empty when it is allowed."""
        decision = self.decide(user, wanted)
        return "" if decision.allowed else _forbidden(user, wanted, decision.reason).message


def _forbidden(user: User, wanted: Attributes, reason: str) -> ApiError:
    """Return 403 in upstream's words."""
    details: dict[str, Any] = {}
    if wanted.path:
        text = f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
    else:
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        qualified = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
        subject = f'{qualified} "{wanted.name}"' if wanted.name else qualified
        place = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
        text = (
            f'{subject} is forbidden: User "{user.name}" cannot {wanted.verb} resource "{resource}" '
            f'in API group "{wanted.group}" {place}'
        )
        named = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
        details = {key: value for key, value in named.items() if value}
    return ApiError(403, "Forbidden", f"{text}: {reason}" if reason else text, details)


# -- claims ------------------------------------------------------------------------------------------------


def _changed_drivers(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Return the drivers whose devices have a new status.

    A deallocation drops the status of its devices. Such a drop does not count, because the scheduler deallocates and
    may not write status.
    """
    before, after = dict(_statuses(old)), dict(_statuses(new))
    freed = set(_allocated(old)) - set(_allocated(new))
    changed = {
        key
        for key in before.keys() | after.keys()
        if not same_json(before.get(key), after.get(key)) and not (key not in after and key[:3] in freed)
    }
    return {driver for driver, _, _, _ in changed}


def _statuses(status: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str, str], Any]]:
    for each in status.get("devices") or ():
        driver, pool, device, share = (each.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
        yield (driver, pool, device, share), each


def _allocated(status: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    for each in devices.get("results") or ():
        yield each.get("driver") or "", each.get("pool") or "", each.get("device") or ""


def _only_node(allocation: Any) -> str | None:
    """Return the one node that an allocation is for; None if it does not name exactly one."""
    terms = ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return None
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1 or (fields[0].get("key"), fields[0].get("operator")) != ("metadata.name", "In"):
        return None
    values = fields[0].get("values") or []
    return values[0] if len(values) == 1 else None
