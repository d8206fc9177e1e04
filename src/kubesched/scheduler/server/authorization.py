"""Authorization of users. Masters may do everything, and the open paths are open to all users. Other requests need an
access review.

Caller: :mod:`.pipeline`. Source: rules/serving §6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from kubesched.base.times import Clock

from .authentication import User
from .options import AuthorizationOptions
from .process_metrics import ProcessMetrics
from .reviews import ExpiringCache, ReviewError, Reviews

__all__ = ["Authorizer", "Decision"]

_MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a request. ``reason`` is the text of the reviewer; it is often empty."""

    allowed: bool
    reason: str = ""


class Authorizer:
    """Authorizer of (user, verb, path). Without ``reviews`` it lets through only masters and the open paths."""

    def __init__(
        self,
        options: AuthorizationOptions,
        *,
        clock: Clock,
        metrics: ProcessMetrics,
        reviews: Reviews | None = None,
    ) -> None:
        paths = [f"/{path.lstrip('/')}" for path in options.always_allow_paths]
        self._open = frozenset(path for path in paths if not path.endswith("*"))
        self._open_prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._reviews = reviews
        self._decisions: ExpiringCache[bytes, Decision] = ExpiringCache(clock)

    async def authorize(self, user: User, verb: str, path: str) -> Decision:
        """Decide on a request; ``verb`` is the HTTP method in lower case, ``path`` comes without the query.

        Raises:
            ReviewError: when the access review cannot be had.
        """
        started = self._clock.now()
        result = "error"
        try:
            decision = await self._authorize(user, verb, path)
            result = "allowed" if decision.allowed else "denied"
            return decision
        finally:
            self._metrics.authorization_attempts_total.inc(result)
            self._metrics.authorization_duration_seconds.observe(self._clock.now() - started, result)

    async def close(self) -> None:
        """End the reviews under way."""
        await self._decisions.close()

    async def _authorize(self, user: User, verb: str, path: str) -> Decision:
        if _MASTERS in user.groups or path in self._open or path.startswith(self._open_prefixes):
            return Decision(True)
        if self._reviews is None:
            return Decision(False)
        spec = _spec(user, verb, path)
        key = msgspec.json.encode(spec)
        known = self._decisions.get(key)
        if known is not None:
            return known
        return await self._decisions.fetch(key, lambda: self._review(spec), self._ttl)

    def _ttl(self, decision: Decision) -> float:
        return self._options.allow_cache_ttl if decision.allowed else self._options.deny_cache_ttl

    async def _review(self, spec: dict[str, Any]) -> Decision:
        assert self._reviews is not None
        status = await self._reviews.post(spec)
        allowed, denied = status.get("allowed") is True, status.get("denied") is True
        if allowed and denied:
            raise ReviewError("the access review says both allowed and denied")
        return Decision(allowed, str(status.get("reason") or ""))


def _spec(user: User, verb: str, path: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"nonResourceAttributes": {"path": path, "verb": verb}, "user": user.name}
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return spec
