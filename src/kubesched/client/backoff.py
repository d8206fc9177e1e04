"""Backoff after failures, and the rate limiter of requests.

Used by the reflector (between rounds), by writes that are worth another try, and by the metered transport.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from kubesched.api.wire import ApiError

__all__ = [
    "MOST_RETRY_AFTER",
    "Backoff",
    "TokenBucket",
    "is_other_uid",
    "is_write_retriable",
    "retry",
    "retry_after",
    "retry_write",
    "token_bucket",
]

T = TypeVar("T")
logger = logging.getLogger("kubesched.client")

#: Most seconds that a server can make a client wait by Retry-After or ``retryAfterSeconds``.
MOST_RETRY_AFTER = 60.0

#: A longer wait (seconds) for the rate limiter is logged as information, a shorter one only for debugging.
SLOW_WAIT_SECONDS = 1.0

WRITE_ATTEMPTS = 4
WRITE_FIRST_DELAY = 0.010
WRITE_DELAY_FACTOR = 5.0
WRITE_JITTER = 0.1
_RETRIABLE_REASONS = frozenset({"InternalError", "ServiceUnavailable", "Conflict"})


class Backoff:
    """Delays of list and watch: 0.8 s doubling to 30 s, each plus up to 100 % jitter.

    After two minutes without a failure, delays start at 0.8 s again (rules/metrics-and-client §6.4).
    """

    INITIAL = 0.8
    FACTOR = 2.0
    MAXIMUM = 30.0
    RESET_AFTER = 120.0

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._base = self.INITIAL
        self._last: float | None = None

    def next_delay(self, now: float) -> float:
        """Return the seconds to wait after a failure now. ``now`` is the event loop's time."""
        if self._last is not None and now - self._last > self.RESET_AFTER:
            self._base = self.INITIAL
        self._last = now
        base = self._base
        self._base = min(base * self.FACTOR, self.MAXIMUM)
        return base * (1.0 + self._rng.random())


class TokenBucket:
    """Rate limiter: ``qps`` requests a second in the long run, ``burst`` at once. Waiters are served in order.

    Raises:
        ValueError: if ``qps`` is not positive or ``burst`` is below 1.
    """

    def __init__(self, qps: float, burst: int) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs qps > 0 and burst >= 1, got qps {qps} and burst {burst}")
        self.qps = qps
        self.burst = burst
        self._tokens = float(burst)
        self._updated: float | None = None
        self._silent_until = 0.0

    def reserve(self, now: float) -> float:
        """Take a token, on credit if need be. Return the seconds until it is available."""
        if self._updated is not None:
            self._tokens = min(float(self.burst), self._tokens + (now - self._updated) * self.qps)
        self._updated = now
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0.0 else -self._tokens / self.qps

    async def acquire(self) -> float:
        """Wait in line for a token and return the seconds waited. A cancelled waiter gives its token back."""
        delay = self.reserve(asyncio.get_running_loop().time())
        if delay <= 0.0:
            return 0.0
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self._tokens += 1.0
            raise
        if delay > SLOW_WAIT_SECONDS:
            self._say(delay)
        return delay

    def _say(self, delay: float) -> None:
        """Log a long wait, at most once a second: thousands of requests may wait in line."""
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until:
            self._silent_until = now + 1.0
            logger.info("a request waited %.1f s because of client-side throttling", delay)


def retry_after(value: object) -> float | None:
    """Return the seconds to wait before a request is repeated. ``value`` is a JSON value or a Retry-After header.

    The result is at most :data:`MOST_RETRY_AFTER`, because a server may send any number. It is None if ``value`` is no
    number of seconds, for example a date in a header. API servers send numbers.
    """
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            return None
        value = int(value) if len(value) <= 20 else MOST_RETRY_AFTER
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(min(value, MOST_RETRY_AFTER))


def token_bucket(qps: float, burst: int) -> TokenBucket | None:
    """Return the rate limiter of a client connection; None (no limit) if ``qps`` is negative."""
    return None if qps < 0 else TokenBucket(qps, burst)


def is_other_uid(error: BaseException) -> bool:
    """True if a write was rejected because the object's UID differs from the UID in the precondition."""
    return isinstance(error, ApiError) and error.reason == "Conflict" and "UID in precondition" in error.message


def is_write_retriable(error: BaseException) -> bool:
    """True if a status write is worth another try: conflict, internal error, unavailable, connection refused."""
    if isinstance(error, ApiError):
        return error.reason in _RETRIABLE_REASONS and not is_other_uid(error)
    return isinstance(error, OSError) and (
        isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED
    )


async def retry(
    call: Callable[[], Awaitable[T]],
    rng: Random,
    *,
    attempts: int,
    first_delay: float,
    factor: float,
    jitter: float,
    retriable: Callable[[BaseException], bool],
) -> T:
    """Await ``call()`` up to ``attempts`` times, with a delay in between.

    The first delay is ``first_delay`` seconds. Each further delay is ``factor`` times the previous one. A random part
    of a delay, up to ``jitter``, is added to it.

    Raises:
        Exception: the error of the last try, or the first error that is not ``retriable``.
    """
    delay = first_delay
    for _ in range(attempts - 1):
        try:
            return await call()
        except Exception as error:
            if not retriable(error):
                raise
        await asyncio.sleep(delay * (1.0 + jitter * rng.random()))
        delay *= factor
    return await call()


def retry_write(call: Callable[[], Awaitable[T]], rng: Random) -> Coroutine[Any, Any, T]:
    """Await ``call()`` up to four times. Delays are 10 ms, 50 ms and 250 ms, with 10 % jitter (rules/cycle §10.3).

    Raises:
        Exception: the error of the last try, or the first error that is not worth another try.
    """
    return retry(
        call,
        rng,
        attempts=WRITE_ATTEMPTS,
        first_delay=WRITE_FIRST_DELAY,
        factor=WRITE_DELAY_FACTOR,
        jitter=WRITE_JITTER,
        retriable=is_write_retriable,
    )
