"""Work is begun without a task, and goes on in one where it has to wait."""

from __future__ import annotations

import asyncio

import pytest

from kubesched.base.at_once import begin, completed


async def double(number: int, *pauses: float) -> int:
    for pause in pauses:
        await asyncio.sleep(pause)
    if number < 0:
        raise ValueError(number)
    return 2 * number


def test_what_waits_for_nothing_is_done_when_it_is_begun() -> None:
    assert begin(double(4), at_once=True) == 8
    assert completed(double(4)) == 8
    with pytest.raises(ValueError, match="-4"):
        begin(double(-4), at_once=True)
    with pytest.raises(ValueError, match="-4"):
        completed(double(-4))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("pauses", [[0.0], [0.001], [0.0, 0.001, 0.0]])
def test_what_waits_goes_on_in_a_task(at_once: bool, pauses: list[float]) -> None:
    async def scenario() -> None:
        for number in (4, -4):
            rest = begin(double(number, *pauses), at_once=at_once)
            assert not isinstance(rest, int)
            task = asyncio.create_task(rest)
            await asyncio.wait([task])
            if number > 0:
                assert task.result() == 8
            else:
                assert isinstance(task.exception(), ValueError)

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", [0, 1])
def test_the_rest_is_cancelled_where_it_waits(turns: int) -> None:
    seen: list[str] = []

    async def work() -> str:
        seen.append("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("tidied up")
        return "ended"

    async def scenario() -> None:
        rest = begin(work(), at_once=True)
        assert not isinstance(rest, str)
        task = asyncio.create_task(rest)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert seen == ["begun"]
        task.cancel()
        await asyncio.wait([task])
        # A task that was cancelled before its first step leaves what it was to do; the work is closed then.
        assert (task.cancelled(), seen) == ((True, ["begun"]) if not turns else (False, ["begun", "tidied up"]))

    asyncio.run(scenario())


def test_work_that_waits_is_not_completed() -> None:
    with pytest.raises(TypeError, match="waits"):
        completed(double(1, 0.0))
