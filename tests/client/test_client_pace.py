"""Number of requests under way at one time, while the server takes them and while it refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from kubesched.api.wire import ApiError
from kubesched.client.http import HttpTransport
from kubesched.client.pace import MOST_PAUSE, Pace
from kubesched.lab.simulate.run.virtual_time import VirtualTimeLoop


def run(main: Coroutine[Any, Any, None]) -> None:
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


class Server:
    """A server that takes ``room`` requests at one time, refuses others, and takes 10 ms for each."""

    def __init__(self, room: int) -> None:
        self.room, self.busy, self.refusals, self.done, self.most = room, 0, 0, 0, 0

    async def write(self, pace: Pace) -> None:
        while True:
            async with pace as token:
                self.most = max(self.most, self.busy + 1)
                if self.busy < self.room:
                    self.busy += 1
                    await asyncio.sleep(0.010)
                    self.busy -= 1
                    self.done += 1
                    pace.taken()
                    return
                await asyncio.sleep(0.001)
                self.refusals += 1
                pace.refused(token, 1.0)
            await asyncio.sleep(1.0)


def test_a_server_that_takes_all_is_not_held_back() -> None:
    async def main() -> None:
        pace, server = Pace(16), Server(100)
        await asyncio.gather(*(server.write(pace) for _ in range(160)))
        assert (server.done, server.refusals, server.most) == (160, 0, 16)
        assert asyncio.get_running_loop().time() < 0.11

    run(main())


def test_a_server_with_little_room_refuses_few_requests() -> None:
    """If each waited by itself, there would be 52,360 refusals, and 4,560 would give up after ten retries."""

    async def main() -> None:
        pace, server = Pace(128), Server(8)
        await asyncio.gather(*(server.write(pace) for _ in range(5_000)))
        assert server.done == 5_000
        assert server.refusals < 300
        assert 1 <= pace.limit <= 2 * server.room
        # 6.3 s if none were refused; 165 s if all waited for each that is refused
        assert asyncio.get_running_loop().time() < 12.0

    run(main())


def test_the_limit_comes_back_when_there_is_room_again() -> None:
    async def main() -> None:
        pace, server = Pace(32), Server(1)
        await asyncio.gather(*(server.write(pace) for _ in range(200)))
        assert pace.limit < 8
        server.room = 1_000
        await asyncio.gather(*(server.write(pace) for _ in range(2_000)))
        assert pace.limit == 32

    run(main())


def test_others_go_on_while_the_server_takes_some() -> None:
    async def main() -> None:
        pace, loop = Pace(4), asyncio.get_running_loop()
        async with pace:
            pace.taken()
        async with pace as token:
            pace.refused(token, 3.0)
        async with pace:
            assert loop.time() == 0.0
            assert pace.limit == 2

    run(main())


def test_all_requests_wait_as_long_as_one_was_told_to_but_not_for_ever() -> None:
    async def main() -> None:
        pace, loop = Pace(4), asyncio.get_running_loop()
        async with pace as token:
            pace.refused(token, 3.0)
        begun = loop.time()
        async with pace as token:
            assert loop.time() - begun == 3.0
            pace.refused(token, 86_400.0)
        async with pace:
            assert loop.time() - begun == 3.0 + MOST_PAUSE

    run(main())


def test_refusals_of_one_round_count_once() -> None:
    async def main() -> None:
        pace = Pace(64)
        tokens = [await pace.__aenter__() for _ in range(64)]
        for token in tokens:
            pace.refused(token, 0.0)
            await pace.__aexit__()
        assert pace.limit == 32

    run(main())


def test_a_request_that_is_given_up_while_it_waits_leaves_its_place_to_others() -> None:
    async def main() -> None:
        pace = Pace(1)
        served: list[str] = []

        async def request(name: str) -> None:
            async with pace:
                served.append(name)
                await asyncio.sleep(1.0)

        first, second, third = (asyncio.ensure_future(request(name)) for name in ("a", "b", "c"))
        await asyncio.sleep(0.5)
        second.cancel()
        await asyncio.gather(first, third)
        assert served == ["a", "c"]
        fourth = asyncio.ensure_future(request("d"))
        await asyncio.sleep(0.5)
        fifth = asyncio.ensure_future(request("e"))
        await asyncio.sleep(0.5)  # d ends in this turn, and its place is e's
        fifth.cancel()
        await asyncio.gather(fourth, fifth, return_exceptions=True)
        await asyncio.wait_for(request("f"), 1.5)
        assert served[-1] == "f"

    run(main())


def test_a_place_becomes_free_in_the_turn_in_which_requests_are_given_up() -> None:
    async def main() -> None:
        pace = Pace(1)
        await pace.__aenter__()
        given_up = [asyncio.ensure_future(pace.__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        for one in given_up:
            one.cancel()
        last = asyncio.ensure_future(pace.__aenter__())
        await pace.__aexit__()  # before the cancelled ones have noticed
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*given_up, return_exceptions=True)
        )
        assert await last == 0

    run(main())


def test_any_answer_but_429_and_5xx_raises_the_limit_and_reads_do_not_wait_for_writes() -> None:
    async def main() -> None:
        transport = HttpTransport("http://127.0.0.1:1")
        answers: list[int] = []

        async def once(method: str, *rest: Any) -> bytes:
            await asyncio.sleep(0.01)
            if (code := answers.pop(0)) >= 300:
                raise ApiError(code, "No", "no")
            return b"{}"

        transport._once = once  # type: ignore[method-assign, assignment]

        async def ask(method: str) -> None:
            with suppress(ApiError):
                await transport._request(method, "/", retry=False)

        for _ in range(8):
            answers[:] = [429]
            await ask("POST")
        assert (transport._writes.limit, transport._reads.limit) == (1, 64)
        answers[:] = [409] * 20_000
        await asyncio.gather(*(ask("POST") for _ in range(20_000)))
        assert transport._writes.limit == 64
        for _ in range(8):
            answers[:] = [429]
            await ask("POST")
        answers[:] = [503] * 20
        await asyncio.gather(*(ask("POST") for _ in range(20)))
        assert transport._writes.limit == 1
        begun = asyncio.get_running_loop().time()
        answers[:] = [200]
        await ask("GET")
        assert asyncio.get_running_loop().time() - begun < 1.0

    run(main())
