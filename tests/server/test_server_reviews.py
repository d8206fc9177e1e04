"""Asking for reviews: tries and their delays, timeouts, and what is remembered for how long. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import msgspec
import pytest

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, Item, Transport
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.config import DEFAULT_GATES
from kubesched.scheduler.server.process_metrics import ProcessMetrics
from kubesched.scheduler.server.reviews import TOKEN_REVIEWS, ExpiringCache, ReviewError, Reviews

SPEC = {"token": "secret"}


def a_clock() -> VirtualClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return VirtualClock(loop)


class Scripted:
    """Answers each request with the next entry: an error to raise, a status, or seconds to wait."""

    def __init__(self, *script: Exception | dict[str, Any] | float) -> None:
        self.script = list(script)
        self.times: list[float] = []

    async def create(self, kind: Kind, namespace: str, obj: dict[str, Any], *, dry_run: bool = False) -> Item:
        assert (kind, namespace, obj["spec"]) == (TOKEN_REVIEWS, "", SPEC)
        self.times.append(asyncio.get_running_loop().time())
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)
            step = {}
        return Item(kind, msgspec.json.encode({"status": step}), "", "", "", 0)


def reviews(server: Scripted, metrics: ProcessMetrics) -> Reviews:
    return Reviews(
        cast("Transport", server),
        TOKEN_REVIEWS,
        rng=Random(3),
        clock=a_clock(),
        requests=metrics.apiserver_delegated_authn_request_total,
        durations=metrics.apiserver_delegated_authn_request_duration_seconds,
    )


def refused(code: int, **details: object) -> ApiError:
    return ApiError(code, "Reason", "the token was secret", details)


TRANSIENT = [refused(500), refused(429), refused(504), ConnectionResetError(), refused(503, retryAfterSeconds=1)]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: str(getattr(error, "code", "reset")))
def test_a_transient_failure_is_repeated_with_growing_delays(error: Exception) -> None:
    async def main() -> None:
        metrics = ProcessMetrics(DEFAULT_GATES, {})
        server = Scripted(error, error, error, error, {"authenticated": True})
        assert await reviews(server, metrics).post(SPEC) == {"authenticated": True}
        waits = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
        for wait, base in zip(waits, (0.5, 0.75, 1.125, 1.6875), strict=True):
            assert base <= wait <= base * 1.2
        code = str(getattr(error, "code", "<error>"))
        counts = {
            key[0]: child.value for key, child in metrics.apiserver_delegated_authn_request_total.children.items()
        }
        assert counts == {code: 4, "201": 1}

    run_virtual(main())


FINAL = [
    (refused(503), "the API server answered the TokenReview with 503 Reason"),
    (
        refused(403),
        "the API server answered the TokenReview with 403 Reason: "
        "this scheduler's user may not create tokenreviews.authentication.k8s.io",
    ),
    (ConnectionRefusedError(111, "secret"), "the TokenReview could not be sent: ConnectionRefusedError"),
]


@pytest.mark.parametrize(("error", "message"), FINAL, ids=[message for _, message in FINAL])
def test_other_failures_are_not_repeated_and_quote_nothing(error: Exception, message: str) -> None:
    async def main() -> None:
        server = Scripted(error)
        with pytest.raises(ReviewError) as caught:
            await reviews(server, ProcessMetrics(DEFAULT_GATES, {})).post(SPEC)
        assert str(caught.value) == message
        assert "secret" not in repr(caught.value)
        assert caught.value.__suppress_context__

    run_virtual(main())


def test_after_five_tries_it_is_given_up() -> None:
    async def main() -> None:
        server = Scripted(*(refused(500) for _ in range(6)))
        with pytest.raises(ReviewError, match="500"):
            await reviews(server, ProcessMetrics(DEFAULT_GATES, {})).post(SPEC)
        assert len(server.times) == 5

    run_virtual(main())


def test_an_unresponsive_server_is_waited_for_ten_seconds_a_try() -> None:
    async def main() -> None:
        server = Scripted(*([60.0] * 5))
        with pytest.raises(ReviewError, match="did not answer the TokenReview within 10 s"):
            await reviews(server, ProcessMetrics(DEFAULT_GATES, {})).post(SPEC)
        assert server.times[1] - server.times[0] == pytest.approx(10.55, abs=0.06)

    run_virtual(main())


def test_an_answer_without_a_status_is_an_error() -> None:
    async def main() -> None:
        class Odd(Scripted):
            async def create(self, kind: Kind, namespace: str, obj: dict[str, Any], *, dry_run: bool = False) -> Item:
                return Item(kind, b"{}", "", "", "", 0)

        with pytest.raises(ReviewError, match="without a status"):
            await reviews(Odd(), ProcessMetrics(DEFAULT_GATES, {})).post(SPEC)

    run_virtual(main())


# -- what is remembered ----------------------------------------------------------------------------------------


def counted(answers: list[str], seconds: float = 0.0) -> Callable[[], Awaitable[str]]:
    async def load() -> str:
        answers.append(f"answer {len(answers)}")
        answer = answers[-1]
        await asyncio.sleep(seconds)
        return answer

    return load


def test_answers_are_kept_for_their_time() -> None:
    async def main() -> None:
        kept: ExpiringCache[str, str] = ExpiringCache(a_clock())
        made: list[str] = []
        assert kept.get("a") is None
        assert await kept.fetch("a", counted(made), lambda _: 10) == "answer 0"
        await asyncio.sleep(9.5)
        assert kept.get("a") == "answer 0"
        await asyncio.sleep(0.5)
        assert kept.get("a") is None
        assert await kept.fetch("a", counted(made), lambda _: 0) == "answer 1"
        assert kept.get("a") is None

    run_virtual(main())


def test_the_least_recently_used_answer_is_dropped_first() -> None:
    async def main() -> None:
        kept: ExpiringCache[int, str] = ExpiringCache(a_clock(), limit=2)
        for key in (1, 2):
            await kept.fetch(key, counted([]), lambda _: 60)
        assert kept.get(1) is not None
        await kept.fetch(3, counted([]), lambda _: 60)
        assert [key for key in (1, 2, 3) if kept.get(key) is not None] == [1, 3]

    run_virtual(main())


def test_a_client_that_hangs_up_does_not_end_the_fetch_of_others() -> None:
    async def main() -> None:
        kept: ExpiringCache[str, str] = ExpiringCache(a_clock())
        made: list[str] = []
        load = counted(made, seconds=5)
        first = asyncio.create_task(kept.fetch("a", load, lambda _: 60))
        second = asyncio.create_task(kept.fetch("a", load, lambda _: 60))
        await asyncio.sleep(1)
        assert kept.is_fetching("a")
        first.cancel()
        assert await second == "answer 0"
        assert made == ["answer 0"]
        assert not kept.is_fetching("a")

    run_virtual(main())


def test_closing_ends_fetches() -> None:
    async def main() -> None:
        kept: ExpiringCache[str, str] = ExpiringCache(a_clock())
        waiting = asyncio.create_task(kept.fetch("a", counted([], seconds=1000), lambda _: 60))
        await asyncio.sleep(1)
        await kept.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run_virtual(main())
