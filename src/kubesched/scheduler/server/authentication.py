"""Authentication of a request: front proxy, client certificate, token review, anonymous, in this order.

Caller: :mod:`.pipeline`. Source: rules/serving §5. The first method that recognises the request decides. If none does,
credentials that a method rejected are an error; a request without credentials is anonymous.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kubesched.base.times import Clock

from .process_metrics import ProcessMetrics
from .reviews import ExpiringCache, ReviewError, Reviews
from .tls import PeerCertificate

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

__all__ = ["ANONYMOUS", "Authenticator", "RequestHeaders", "Trust", "Unauthorized", "User"]

_log = logging.getLogger("kubesched.scheduler.server")

_AUTHENTICATED: Final = "system:authenticated"
_UNAUTHENTICATED: Final = "system:unauthenticated"
_KNOWN_NAMES: Final = frozenset({"admin", "client", "tls"})


@dataclass(frozen=True, slots=True)
class User:
    """User of a request. ``extra`` has a list of texts per key."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS: Final = User("system:anonymous", (_UNAUTHENTICATED,))


class Unauthorized(Exception):  # noqa: N818 - the Status reason's name
    """Credentials were presented and refused. The message is for the log; it quotes no secret."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Front proxy: the authorities (DER) of its certificate, the names that it may have (any if empty), the headers
    that it uses.
    """

    authorities: frozenset[bytes]
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_headers_prefix: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """Authorities (DER) whose client certificates are accepted at this moment, and the front proxy."""

    client_authorities: frozenset[bytes] = frozenset()
    front_proxy: RequestHeaders | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Result of a token review: a user, or None and the reason."""

    user: User | None
    problem: str = ""


class Authenticator:
    """Authenticator of requests. ``trust`` returns the accepted authorities; without ``reviews`` tokens are ignored."""

    def __init__(
        self,
        *,
        trust: Callable[[], Trust],
        clock: Clock,
        metrics: ProcessMetrics,
        reviews: Reviews | None = None,
        token_cache_ttl: float = 10.0,
    ) -> None:
        self._trust = trust
        self._clock = clock
        self._metrics = metrics
        self._reviews = reviews
        self._ttl = token_cache_ttl
        # A keyed digest of each token is kept, not the token itself; the key is lost with the process.
        self._secret = secrets.token_bytes(32)
        self._tokens: ExpiringCache[bytes, _Verdict] = ExpiringCache(clock)

    async def authenticate(self, headers: CIMultiDictProxy[str], peer: PeerCertificate | None) -> User:
        """Return the user of a request with these headers, on a connection with this certificate.

        Raises:
            Unauthorized: when credentials were presented and no method accepts them.
        """
        started = self._clock.now()
        result = "error"
        try:
            user = await self._authenticate(headers, peer)
            result = "success"
        except Unauthorized:
            result = "failure"
            raise
        finally:
            self._metrics.authentication_attempts.inc(result)
            self._metrics.authentication_duration_seconds.observe(self._clock.now() - started, result)
        self._metrics.authenticated_user_requests.inc(_compressed(user.name))
        return user

    async def close(self) -> None:
        """End the reviews under way."""
        await self._tokens.close()

    async def _authenticate(self, headers: CIMultiDictProxy[str], peer: PeerCertificate | None) -> User:
        problems: list[str] = []
        user = self._front_proxy(headers, peer, problems) or self._certificate(peer, problems)
        if user is None and self._reviews is not None:
            user = await self._token(headers, problems)
        if user is not None:
            if _AUTHENTICATED in user.groups or _UNAUTHENTICATED in user.groups:
                return user
            return replace(user, groups=(*user.groups, _AUTHENTICATED))
        if problems:
            raise Unauthorized("; ".join(problems))
        return ANONYMOUS

    # -- certificates --------------------------------------------------------------------------------------

    def _is_valid(self, peer: PeerCertificate, authorities: frozenset[bytes], problems: list[str]) -> bool:
        if authorities.isdisjoint(peer.chain):
            problems.append("the client certificate is signed by an unknown authority")
            return False
        if peer.not_after < self._clock.now():
            problems.append("the client certificate has expired")
            return False
        return True

    def _front_proxy(
        self, headers: CIMultiDictProxy[str], peer: PeerCertificate | None, problems: list[str]
    ) -> User | None:
        proxy = self._trust().front_proxy
        if proxy is None or peer is None or not self._is_valid(peer, proxy.authorities, problems):
            return None
        if proxy.allowed_names and peer.common_name not in proxy.allowed_names:
            problems.append("the front proxy's certificate has a name that is not allowed")
            return None
        name = _first(headers, proxy.username_headers)
        if not name:
            return None
        groups = [value for header in proxy.group_headers for value in headers.getall(header, ())]
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in proxy.extra_headers_prefix:
            for header, value in headers.items():
                lower = header.lower()
                if lower.startswith(prefix.lower()):
                    key = unquote(lower[len(prefix) :])
                    extra[key] = (*extra.get(key, ()), value)
        return User(name, tuple(groups), _first(headers, proxy.uid_headers), extra)

    def _certificate(self, peer: PeerCertificate | None, problems: list[str]) -> User | None:
        authorities = self._trust().client_authorities
        if not authorities or peer is None or not self._is_valid(peer, authorities, problems):
            return None
        return User(peer.common_name, peer.organizations) if peer.common_name else None

    # -- tokens --------------------------------------------------------------------------------------------

    async def _token(self, headers: CIMultiDictProxy[str], problems: list[str]) -> User | None:
        parts = headers.get("Authorization", "").strip().split(" ", 2)
        if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
            return None
        token = parts[1]
        key = hmac.new(self._secret, token.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()
        started = self._clock.now()
        metrics = self._metrics
        verdict = self._tokens.get(key)
        status = "hit" if verdict is not None else "miss"
        try:
            if verdict is None:
                kind = "blocked" if self._tokens.is_fetching(key) else "in_flight"
                active = metrics.authentication_token_cache_active_fetch_count.labels(kind)
                active.inc()
                try:
                    verdict = await self._tokens.fetch(key, lambda: self._review(token), lambda _: self._ttl)
                finally:
                    active.dec()
        except ReviewError as error:
            _log.error("a bearer token could not be reviewed: %s", error)
            problems.append("the bearer token could not be reviewed")
            return None
        finally:
            metrics.authentication_token_cache_request_total.inc(status)
            metrics.authentication_token_cache_request_duration_seconds.observe(self._clock.now() - started, status)
        if verdict.user is None:
            problems.append(verdict.problem)
        return verdict.user

    async def _review(self, token: str) -> _Verdict:
        assert self._reviews is not None
        fetches = self._metrics.authentication_token_cache_fetch_total
        try:
            status = await self._reviews.post({"token": token})
        except ReviewError:
            fetches.inc("error")
            raise
        fetches.inc("ok")
        if status.get("authenticated") is not True:
            return _Verdict(None, "the bearer token is invalid")
        user = _reviewed_user(status.get("user"))
        return _Verdict(user) if user is not None else _Verdict(None, "the token review names no user")


def _reviewed_user(given: Any) -> User | None:
    if not isinstance(given, dict) or not given.get("username"):
        return None
    extra = given.get("extra") or {}
    return User(
        str(given["username"]),
        tuple(str(group) for group in given.get("groups") or ()),
        str(given.get("uid") or ""),
        {str(key): tuple(str(value) for value in values or ()) for key, values in extra.items()},
    )


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    """Return the first value that is not empty."""
    return next((value for name in names if (value := headers.get(name, ""))), "")


def _compressed(name: str) -> str:
    """Label for a user name: the number of series must not grow with the number of users."""
    if name in _KNOWN_NAMES:
        return name
    return "email_id" if "@" in name else "other"
