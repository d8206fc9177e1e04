"""Time that runs faster: timers of the loop scale, sockets still work."""

from __future__ import annotations

import asyncio

import pytest

from kubesched.lab.simulate.run.scaled_time import ScaledClock, ScaledTimeLoop


def _run(speed: float, main: object) -> object:
    loop = ScaledTimeLoop(speed)
    try:
        return loop.run_until_complete(main(loop))  # type: ignore[operator]
    finally:
        loop.close()


def test_an_hour_of_loop_time_passes_while_sleeping_an_hour() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> float:
        clock = ScaledClock(loop, 1000.0)
        before = clock.now()
        await asyncio.sleep(3600)
        return clock.now() - before

    elapsed = _run(36_000, main)
    assert isinstance(elapsed, float)
    assert elapsed >= 3600


def test_clock_starts_at_the_given_epoch() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> float:
        return ScaledClock(loop, 5e8).now()

    assert _run(1, main) == pytest.approx(5e8, abs=60)


def test_sockets_work_while_time_is_scaled() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return answer

    assert _run(100, main) == b"hello\n"


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_that_is_no_positive_number_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="not a positive number"):
        ScaledTimeLoop(speed)
