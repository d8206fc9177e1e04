"""Users of requests: the administrator, a service account by its token, or a user whom the administrator impersonates.

Tokens of service accounts are signed, not stored: JSON Web Tokens with the claims of kube-apiserver's. Callers:
:mod:`.access` and, for requests of tokens, :mod:`.posted`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from kubesched.api.kinds import SERVICE_ACCOUNTS
from kubesched.api.wire import ApiError

from ..schema import encode
from ..store import Store

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

__all__ = [
    "ACCOUNTS",
    "ADMIN",
    "ANONYMOUS",
    "MASTERS",
    "Accounts",
    "User",
    "account_name",
    "impersonated",
    "service_account",
]

MASTERS: Final = "system:masters"
_AUTHENTICATED: Final = "system:authenticated"
_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
#: Prefix of the user names of service accounts.
ACCOUNTS: Final = "system:serviceaccount:"
_EXTRA: Final = "impersonate-extra-"


class User(NamedTuple):
    """Sender of a request. ``extra`` are further facts, such as the node of a service account's pod."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the user in the form of a review."""
        data = {"username": self.name, "uid": self.uid, "groups": list(self.groups), "extra": dict(self.extra)}
        return {key: value for key, value in data.items() if value}


ADMIN: Final = User("kubesched:admin", (MASTERS, _AUTHENTICATED))
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{ACCOUNTS}{namespace}:{name}"


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED)
    return User(account_name(namespace, name), groups, uid)


# -- impersonation -----------------------------------------------------------------------------------------


def impersonated(headers: CIMultiDictProxy[str]) -> User | None:
    """Return the user in the ``Impersonate-`` headers of a request, with the groups that upstream adds; None without
    headers.

    Raises:
        ApiError: 400 for groups, a UID or extras without a user.
    """
    if not any(name[:12].lower() == "impersonate-" for name in headers):
        return None
    name, groups = headers.get("Impersonate-User", ""), tuple(headers.getall("Impersonate-Group", ()))
    uid, extra = headers.get("Impersonate-Uid", ""), _extra(headers)
    if not name:
        if groups or uid or extra:
            text = "requests that impersonate a group, a UID or extra fields must impersonate a user, too"
            raise ApiError.bad_request(f"{text}: there is no header Impersonate-User")
        return None
    if name.startswith(ACCOUNTS) and name.count(":") == 3 and not groups:
        groups = service_account(*name.split(":")[2:]).groups
    elif name == ANONYMOUS.name:
        groups = tuple(dict.fromkeys((*groups, *ANONYMOUS.groups)))
    else:
        groups = tuple(dict.fromkeys((*groups, _AUTHENTICATED)))
    return User(name, groups, uid, extra)


def _extra(headers: CIMultiDictProxy[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.lower().startswith(_EXTRA):
            key = unquote(name[len(_EXTRA) :].lower())
            found[key] = (*found.get(key, ()), value)
    return tuple(sorted(found.items()))


# -- tokens of service accounts ----------------------------------------------------------------------------


class _Named(msgspec.Struct):
    name: str
    uid: str


class _Private(msgspec.Struct):
    namespace: str
    serviceaccount: _Named


class _Claims(msgspec.Struct):
    exp: int
    kubernetes: _Private = msgspec.field(name="kubernetes.io")


class Accounts:
    """Tokens of a store's service accounts. With a server ``token`` they stay valid after a restart."""

    def __init__(self, store: Store, token: str | None) -> None:
        self._store = store
        seed = secrets.token_bytes(32) if token is None else token.encode()
        self._key = hashlib.sha256(b"tokens of service accounts\0" + seed).digest()

    def issue(self, namespace: str, name: str, audiences: Sequence[str], seconds: int) -> str:
        """Return a token of a service account, valid for ``seconds``.

        Raises:
            ApiError: 404, when there is no such service account.
        """
        uid = self._store.get(SERVICE_ACCOUNTS, namespace, name).uid
        now = int(self._store.clock.now())
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "iss": _ISSUER,
            "sub": account_name(namespace, name),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        }
        signed = b".".join(_packed(encode(part)) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        return (signed + b"." + self._signature(signed)).decode()

    def user_of(self, token: bytes) -> User | None:
        """Return the user of a token; None when it is forged, expired, or of an account that is gone."""
        signed, _, signature = token.rpartition(b".")
        if not signed or not hmac.compare_digest(signature, self._signature(signed)):
            return None
        claims = msgspec.json.decode(_unpacked(signed.rpartition(b".")[2]), type=_Claims)
        namespace, account = claims.kubernetes.namespace, claims.kubernetes.serviceaccount
        item = self._store.table(SERVICE_ACCOUNTS).objects.get((namespace, account.name))
        if claims.exp <= self._store.clock.now() or item is None or item.uid != account.uid:
            return None
        return service_account(namespace, account.name, account.uid)

    def _signature(self, signed: bytes) -> bytes:
        return _packed(hmac.digest(self._key, signed, "sha256"))


def _packed(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _unpacked(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
