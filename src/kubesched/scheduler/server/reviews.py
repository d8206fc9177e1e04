"""Reviews by the API server, which identify the user of a token and decide what a user may do.

    request ──▶ cached? ──no──▶ POST, up to five tries ──▶ status of the review ──▶ cached for its time

Callers: :mod:`.authentication` and :mod:`.authorization`. Neither tokens nor the texts of answers go into errors or
logs: a server may quote the request in its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, Generic, TypeVar

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, Transport
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock
from kubesched.client.backoff import retry
from kubesched.client.metered import NO_RESPONSE

from ..framework.metrics import Counter, Histogram

__all__ = ["SUBJECT_ACCESS_REVIEWS", "TOKEN_REVIEWS", "ExpiringCache", "ReviewError", "Reviews"]

_log = logging.getLogger("kubesched.scheduler.server")

TOKEN_REVIEWS: Final = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
#: Longest time of one try in seconds, and the series of tries (rules/serving §5, webhook client).
TIMEOUT: Final = 10.0
_TRIES: Final = 5
_FIRST_DELAY: Final = 0.5
_FACTOR: Final = 1.5
_JITTER: Final = 0.2
_TRANSIENT: Final = frozenset({429, 500, 504})
_REMEMBERED: Final = 4096

K = TypeVar("K")
V = TypeVar("V")


class ReviewError(Exception):
    """A review could not be made. The message says what happened and quotes nothing of the request."""


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return error.code in _TRANSIENT or "retryAfterSeconds" in error.details
    return isinstance(error, ConnectionResetError | TimeoutError)


class Reviews:
    """Sender of reviews of one kind. ``requests`` and ``durations`` record each try by status code."""

    def __init__(
        self, transport: Transport, kind: Kind, *, rng: Random, clock: Clock, requests: Counter, durations: Histogram
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._rng = rng
        self._clock = clock
        self._requests = requests
        self._durations = durations

    async def post(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a review of ``spec``.

        Raises:
            ReviewError: when the API server refuses, cannot be reached, or answers with something else.
        """
        name = self._kind.kind
        try:
            answer = await retry(
                lambda: self._once(spec),
                self._rng,
                attempts=_TRIES,
                first_delay=_FIRST_DELAY,
                factor=_FACTOR,
                jitter=_JITTER,
                retriable=_is_transient,
            )
        except ApiError as error:
            text = f"the API server answered the {name} with {error.code} {error.reason}"
            if error.code == 403:
                text += f": this scheduler's user may not create {self._kind}"
            raise ReviewError(text) from None
        except TimeoutError:
            raise ReviewError(f"the API server did not answer the {name} within {TIMEOUT:g} s") from None
        except OSError as error:
            raise ReviewError(f"the {name} could not be sent: {type(error).__name__}") from None
        status = answer.get("status")
        if not isinstance(status, dict):
            raise ReviewError(f"the API server answered the {name} without a status")
        return status

    async def _once(self, spec: dict[str, Any]) -> dict[str, Any]:
        started = self._clock.now()
        code = NO_RESPONSE
        try:
            async with asyncio.timeout(TIMEOUT):
                item = await self._transport.create(self._kind, "", {"metadata": {}, "spec": spec})
            code = "201"
            return item.data()
        except ApiError as error:
            code = str(error.code)
            raise
        finally:
            self._requests.inc(code)
            self._durations.observe(self._clock.now() - started, code)


class ExpiringCache(Generic[K, V]):
    """Cache of answers that expire, each at its own time. Callers with one key share a fetch; errors are not kept.

    At most ``limit`` answers are kept; the least recently used answer is dropped first.
    """

    def __init__(self, clock: Clock, *, limit: int = _REMEMBERED) -> None:
        self._clock = clock
        self._limit = limit
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._fetches: dict[K, asyncio.Future[V]] = {}
        self._tasks = Supervisor("reviews")

    def get(self, key: K) -> V | None:
        """Return an answer that has not expired, or None."""
        found = self._answers.get(key)
        if found is None:
            return None
        if found[0] <= self._clock.now():
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return found[1]

    def is_fetching(self, key: K) -> bool:
        """True if a fetch of this key is under way."""
        return key in self._fetches

    async def fetch(self, key: K, load: Callable[[], Awaitable[V]], ttl: Callable[[V], float]) -> V:
        """Return the answer of ``load``, and keep it for ``ttl(answer)`` seconds from now on.

        Raises:
            Exception: the error of ``load``, in every waiting caller.
        """
        result = self._fetches.get(key)
        if result is None:
            result = self._fetches[key] = asyncio.get_running_loop().create_future()
            result.add_done_callback(_retrieve)
            self._tasks.spawn(self._load(key, result, load, ttl), "review", lasting=False)
        # A client that hangs up must not cancel the fetch for others, so callers only wait for the future.
        await asyncio.wait((result,))
        return result.result()

    async def _load(
        self, key: K, result: asyncio.Future[V], load: Callable[[], Awaitable[V]], ttl: Callable[[V], float]
    ) -> None:
        try:
            answer = await load()
            seconds = ttl(answer)
        except Exception as error:
            result.set_exception(error)
        else:
            result.set_result(answer)
            if seconds > 0:
                self._keep(key, answer, seconds)
        finally:
            del self._fetches[key]
            result.cancel()  # without effect once there is a result

    def _keep(self, key: K, answer: V, seconds: float) -> None:
        self._answers[key] = (self._clock.now() + seconds, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    async def close(self) -> None:
        """Cancel the fetches under way, for every waiting caller."""
        await self._tasks.stop()


def _retrieve(result: asyncio.Future[Any]) -> None:
    """Read a fetch's error: if all callers were cancelled, the event loop would report it as never retrieved."""
    if not result.cancelled() and result.exception() is not None:
        _log.debug("review failed: %s", result.exception())
