"""The informer against a small server: its requests, its notifications, and the faults it survives."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest
from client_fake_server import FakeServer, View, make_item, status_item

from kubesched.api.kinds import NODES, PODS
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state
from kubesched.api.wire import ApiError, Item, WatchEvent
from kubesched.client.backoff import Backoff
from kubesched.client.informer import Informer
from kubesched.lab.simulate.run.virtual_time import run_virtual

Script = Callable[[FakeServer, Informer, View], Awaitable[None]]


def play(script: Script, *, nodes: int = 0, **options: Any) -> tuple[FakeServer, Informer, View]:
    """Run an informer over a server with ``nodes`` nodes while ``script`` goes on, then stop it."""
    server = FakeServer()
    view = View()
    for number in range(nodes):
        server.put(f"n{number}")
    informer = Informer(server, NODES, rng=Random(1), **options)
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        assert await informer.wait_synced()
        await script(server, informer, view)
        informer.stop()
        await task

    run_virtual(main())
    return server, informer, view


async def soon() -> None:
    await asyncio.sleep(0.1)


def requests(server: FakeServer, verb: str) -> list[tuple[Any, ...]]:
    return [call[1:] for call in server.calls if call[0] == verb]


def test_the_first_list_comes_in_pages_and_reaches_handlers_as_initial_additions() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        assert view.received == [("initial", f"n{number}", 11 + number) for number in range(5)]

    server, informer, _ = play(script, nodes=5, page_size=2)
    assert requests(server, "list") == [(2, "", "0"), (2, "n1", ""), (2, "n3", "")]
    assert informer.has_synced
    assert informer.get("", "n3").name == "n3"
    assert informer.get_by_key("n9") is None
    assert [node.name for node in informer.values()] == informer.keys() == ["n0", "n1", "n2", "n3", "n4"]
    assert len(informer) == 5


def test_changes_arrive_in_order_and_a_watch_starts_at_the_lists_version() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        server.put("a")
        server.put("a")
        server.remove("n0")
        await soon()

    server, informer, view = play(script, nodes=1)
    assert requests(server, "watch")[0][0] == "11"
    assert view.received == [("initial", "n0", 11), ("add", "a", 12), ("update", "a", 13), ("delete", "n0", 14)]
    statistics = informer.statistics()
    assert (statistics.adds, statistics.updates, statistics.deletes, statistics.events) == (2, 1, 1, 3)
    assert (statistics.resource_version, statistics.objects, statistics.lists) == (14, 1, 1)


@pytest.mark.parametrize("skip", [False, True])
def test_a_change_that_comes_with_the_deletion_may_be_left_out(skip: bool) -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        await soon()
        server.put("a")
        server.remove("a")
        server.put("a")
        server.put("a")
        await soon()

    _, informer, view = play(script, skip_ended=skip)
    changes = [("add", "a", 11), ("update", "a", 12), ("delete", "a", 13), ("add", "a", 14), ("update", "a", 15)]
    assert view.received == [change for change in changes if not (skip and change == changes[1])]
    assert (informer.statistics().events, informer.statistics().resource_version) == (5, 15)


def test_a_watch_that_times_out_is_taken_up_again_without_a_list() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        await asyncio.sleep(3600)
        server.put("b")
        await soon()

    server, informer, view = play(script)
    watches = requests(server, "watch")
    assert len(requests(server, "list")) == 1
    assert len(watches) >= 6
    assert all(300 <= timeout <= 600 for _, timeout in watches)
    assert len({timeout for _, timeout in watches}) == len(watches)
    assert watches[-1][0] == "11"
    assert sorted(view.objects) == ["a", "b"]
    assert informer.statistics().errors == 0


def test_a_stream_that_never_ends_is_cut_off_and_renewed() -> None:
    class Deaf(FakeServer):
        """Opens watches and forgets them."""

        async def watch(self, *args: Any, **kwargs: Any) -> Any:
            self.calls.append(("watch",))
            await asyncio.Event().wait()
            yield []

    async def main() -> None:
        server = Deaf()
        informer = Informer(server, NODES, rng=Random(1))
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(2000)
        assert 3 <= len(requests(server, "watch")) <= 7
        assert informer.statistics().errors == 0
        informer.stop()
        await task

    run_virtual(main())


def test_bookmarks_move_the_version_on() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        server.inject(WatchEvent("BOOKMARK", Item(NODES, b"{}", "", "", "", 900)))
        await soon()
        server.cut(ConnectionResetError("gone"))
        await asyncio.sleep(5)

    server, informer, view = play(script)
    assert [version for version, _ in requests(server, "watch")] == ["10", "900"]
    assert view.received == []
    assert informer.statistics().bookmarks == 1


def test_old_events_do_not_move_the_version_back() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        server.put("a")
        await soon()
        server.inject(WatchEvent("ADDED", make_item(NODES, "", "a", 11)))
        server.inject(WatchEvent("BOOKMARK", Item(NODES, b"{}", "", "", "", 9)))
        await soon()
        server.cut(ConnectionResetError("gone"))
        await asyncio.sleep(5)

    server, _, _ = play(script)
    assert [version for version, _ in requests(server, "watch")] == ["10", "12"]


REFUSALS = [
    ConnectionResetError("reset"),
    ConnectionRefusedError("refused"),
    ApiError(429, "TooManyRequests", "slow down"),
    ApiError(503, "ServiceUnavailable", "starting"),
    ApiError(500, "InternalError", "oops"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=str)
def test_after_a_refusal_the_watch_goes_on_where_it_was(error: Exception) -> None:
    errors: list[Exception] = []

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        await soon()
        server.watch_failures.append(error)
        server.cut(None)
        await asyncio.sleep(0.5)
        assert len(requests(server, "watch")) == 2
        server.put("b")
        await asyncio.sleep(1.5)
        assert sorted(view.objects) == ["a", "b"]

    server, _, _ = play(script, on_error=errors.append)
    assert errors == [error]
    assert len(requests(server, "list")) == 1
    assert [version for version, _ in requests(server, "watch")] == ["10", "11", "11"]


def test_a_server_fault_that_repeats_leads_to_a_new_list() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        server.watch_failures += [ApiError(500, "InternalError", "a"), ApiError(500, "InternalError", "b")]
        server.put("a")
        await soon()
        server.cut(None)
        await asyncio.sleep(30)
        assert sorted(view.objects) == ["a"]

    server, _, _ = play(script)
    assert len(requests(server, "list")) == 2


def test_server_faults_with_events_between_them_need_no_new_list() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        for name in "abc":
            server.put(name)
            await soon()
            server.watch_failures.append(ApiError(503, "ServiceUnavailable", "x"))
            server.cut(None)
            await asyncio.sleep(30)

    server, _, view = play(script)
    assert len(requests(server, "list")) == 1
    assert sorted(view.objects) == ["a", "b", "c"]


def test_being_throttled_again_and_again_needs_no_new_list() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        await soon()
        server.watch_failures += [ApiError(429, "TooManyRequests", "x")] * 3
        server.cut(None)
        await asyncio.sleep(60)

    server, _, _ = play(script)
    assert len(requests(server, "list")) == 1
    assert len(requests(server, "watch")) == 5


def test_a_server_that_asks_for_patience_gets_it() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        server.put("a")
        await soon()
        server.watch_failures.append(ApiError(429, "TooManyRequests", "wait", {"retryAfterSeconds": 60}))
        server.cut(None)
        await asyncio.sleep(59)
        assert len(requests(server, "watch")) == 2
        await asyncio.sleep(2)
        assert len(requests(server, "watch")) == 3

    play(script)


def test_very_short_watches_do_not_spin() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        for _ in range(200):
            await asyncio.sleep(0.1)
            server.cut(None)

    server, _, _ = play(script)
    assert len(requests(server, "watch")) < 12
    assert len(requests(server, "list")) == len(requests(server, "watch"))


@pytest.mark.parametrize("inside", [False, True], ids=["when opening", "as an ERROR in the stream"])
def test_expired_history_means_a_new_list_with_tombstones_first(inside: bool) -> None:
    gone = ApiError.expired("too old resource version")

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        if inside:
            server.inject(WatchEvent("ERROR", status_item(NODES, gone)))
            await asyncio.sleep(0.01)
        else:
            server.watch_failures.append(gone)
            server.put("n2")
            await asyncio.sleep(0.01)
            server.cut(None)
        server.remove("n0")
        server.put("n1")
        server.put("a")
        await asyncio.sleep(5)

    server, informer, view = play(script, nodes=4)
    extra = [] if inside else [("update", "n2", 15)]
    version = 14 if inside else 15
    assert view.received[4:] == [
        *extra,
        ("tombstone", "n0", 11),
        ("add", "a", version + 3),
        ("update", "n1", version + 2),
    ]
    assert informer.statistics().lists == 2
    assert requests(server, "list")[1] == (0, "", str(version))


def test_a_version_the_server_does_not_know_yet_is_given_up_for_the_latest() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        too_large = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        server.list_failures.append(ApiError(504, "Timeout", "Too large resource version: 11", too_large))
        server.inject(WatchEvent("ERROR", status_item(NODES, ApiError.expired("old"))))
        await asyncio.sleep(5)

    server, _, _ = play(script, nodes=1)
    assert requests(server, "list")[1:] == [(0, "", "11"), (500, "", "")]


def test_a_server_that_answered_in_pages_is_asked_for_pages_again() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        server.inject(WatchEvent("ERROR", status_item(NODES, ApiError.expired("old"))))
        await asyncio.sleep(5)

    server, _, _ = play(script, nodes=3, page_size=2)
    assert requests(server, "list")[2:] == [(2, "", "13"), (2, "n1", "")]


def test_a_page_that_expires_is_replaced_by_one_whole_list() -> None:
    server = FakeServer()
    for number in range(5):
        server.put(f"n{number}")
    view = View()
    informer = Informer(server, NODES, rng=Random(1), page_size=2)
    informer.add_handler(view)

    original = server.list

    async def list_once(*args: Any, **kwargs: Any) -> Any:
        if kwargs["continue_token"]:
            server.list_failures.append(ApiError.expired("continue token"))
        return await original(*args, **kwargs)

    server.list = list_once  # type: ignore[method-assign]

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        assert await informer.wait_synced()
        informer.stop()
        await task

    run_virtual(main())
    assert requests(server, "list") == [(2, "", "0"), (2, "n1", ""), (0, "", "0")]
    assert len(view.objects) == 5


STALE = [
    ("a repeated addition", [WatchEvent("ADDED", make_item(NODES, "", "n0", 11))], []),
    ("an older state", [WatchEvent("MODIFIED", make_item(NODES, "", "n0", 9))], []),
    ("an older deletion", [WatchEvent("DELETED", make_item(NODES, "", "n0", 9))], []),
    ("a deletion of something unknown", [WatchEvent("DELETED", make_item(NODES, "", "x", 50))], []),
    (
        "an addition that was deleted already",
        [WatchEvent("DELETED", make_item(NODES, "", "n0", 12)), WatchEvent("ADDED", make_item(NODES, "", "n0", 11))],
        [("delete", "n0", 12)],
    ),
    (
        "all events of an object repeated from the middle",
        [
            WatchEvent("ADDED", make_item(NODES, "", "x", 50)),
            WatchEvent("DELETED", make_item(NODES, "", "x", 51)),
            WatchEvent("ADDED", make_item(NODES, "", "x", 50)),
        ],
        [("add", "x", 50), ("delete", "x", 51)],
    ),
    (
        "an addition that comes after its deletion",
        [WatchEvent("DELETED", make_item(NODES, "", "x", 50)), WatchEvent("ADDED", make_item(NODES, "", "x", 49))],
        [],
    ),
    ("an unknown object from before the list", [WatchEvent("MODIFIED", make_item(NODES, "", "x", 5))], []),
    ("a change of something unknown", [WatchEvent("MODIFIED", make_item(NODES, "", "x", 50))], [("add", "x", 50)]),
    ("an addition of something known", [WatchEvent("ADDED", make_item(NODES, "", "n0", 50))], [("update", "n0", 50)]),
    (
        "a deletion with the last version as final state",
        [WatchEvent("DELETED", make_item(NODES, "", "n0", 11))],
        [("delete", "n0", 11)],
    ),
    ("an event without a name", [WatchEvent("ADDED", make_item(NODES, "", "", 50))], []),
    ("an event of a strange type", [WatchEvent("RENAMED", make_item(NODES, "", "x", 50))], []),
]


@pytest.mark.parametrize(("events", "received"), [case[1:] for case in STALE], ids=[case[0] for case in STALE])
def test_odd_events_do_no_harm(events: list[WatchEvent], received: list[tuple[str, str, int]]) -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        for event in events:
            server.inject(event)
        await soon()

    _, informer, view = play(script, nodes=1)
    assert view.received[1:] == received
    assert informer.statistics().errors == 0


def test_an_unreadable_object_counts_as_absent_until_it_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    bad = {"spec": {"taints": [{"key": 7}]}}

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await soon()
        server.put("x", bad)
        server.put("n0", bad)
        server.put("y")
        await soon()
        assert sorted(view.objects) == sorted(informer.keys()) == ["n1", "y"]
        server.put("n0")
        server.put("n1", bad)
        server.remove("x")
        server.remove("n1")
        await soon()

    _, informer, view = play(script, nodes=2)
    assert view.received[2:] == [
        ("tombstone", "n0", 11),
        ("add", "y", 15),
        ("add", "n0", 16),
        ("tombstone", "n1", 12),
    ]
    assert informer.statistics().undecodable == 3
    messages = [record.getMessage() for record in caplog.records if record.name == "kubesched.client"]
    assert "nodes n0 (version 14) skipped" in messages[1]
    assert "$.spec.taints[0].key" in messages[1]


def test_an_unreadable_object_in_the_list_disturbs_no_other() -> None:
    server = FakeServer()
    server.put("a")
    server.put("bad", {"metadata": 5})
    server.objects["bad"] = Item(NODES, b'{"metadata": 5}', "", "bad", "u", 12)
    server.objects["worse"] = Item(NODES, b"{", "", "worse", "u", 12)
    server.put("c")
    informer = Informer(server, NODES, rng=Random(1))

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        informer.stop()
        await task

    run_virtual(main())
    assert informer.keys() == ["a", "c"]
    assert informer.statistics().undecodable == 2


def test_a_handler_that_raises_is_logged_and_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def on_add(self, obj: Any, is_initial: bool) -> None:
            raise ValueError("add")

        def on_update(self, old: Any, new: Any) -> None:
            raise ValueError("update")

        def on_delete(self, obj: Any) -> None:
            raise ValueError("delete")

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.remove_handler(view)
        informer.add_handler(Broken())
        view.objects.clear()
        view.received.clear()
        informer.add_handler(view)
        await soon()
        server.put("n0")
        server.put("a")
        server.remove("a")
        await soon()

    with caplog.at_level(logging.ERROR, "kubesched.client"):
        _, informer, view = play(script, nodes=1)
    assert [what for what, _, _ in view.received] == ["initial", "update", "add", "delete"]
    assert informer.statistics().handler_errors == 4
    assert "handler Broken failed on nodes n0" in caplog.text


class Failing(View):
    """Fails a given number of times, in the given method, for object ``bad``; keeps when it was called."""

    def __init__(self, method: str, times: int) -> None:
        super().__init__()
        self.method, self.times = method, times
        self.called: list[tuple[str, float]] = []

    def _call(self, method: str, name: str) -> None:
        if name == "bad":
            self.called.append((method, asyncio.get_running_loop().time()))
            if method == self.method and self.times:
                self.times -= 1
                raise ValueError(f"{method} fails")

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._call("add", obj.metadata.name)
        super().on_add(obj, is_initial)

    def on_update(self, old: Any, new: Any) -> None:
        self._call("update", new.metadata.name)
        super().on_update(old, new)

    def on_delete(self, obj: Any) -> None:
        final = final_state(obj)
        self._call("delete", final.metadata.name)
        super().on_delete(final)


@pytest.mark.parametrize("times", [1, 2, 9])
@pytest.mark.parametrize("method", ["add", "update", "delete"])
def test_an_object_that_a_handler_failed_on_is_delivered_again_with_backoff(
    method: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(method, times)

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.add_handler(failing)
        for step in (lambda: server.put("bad"), lambda: server.put("bad"), lambda: server.remove("bad")):
            step()
            server.put("good")
            await soon()
            assert failing.objects["good"] is informer.get("", "good")  # other objects are not held up
            assert view.objects.keys() == set(informer.keys())  # nor is another handler
            behind = informer.behind
            await asyncio.sleep(400)
            assert informer.behind == 0
            assert failing.objects == view.objects
            if behind:
                assert informer.statistics().recovered == 1
                assert informer.statistics().handler_errors == times

    with caplog.at_level(logging.INFO, "kubesched.client"):
        play(script)
    assert failing.times == 0
    calls = [time for what, time in failing.called if what == method]
    pauses = [after - before for before, after in itertools.pairwise(calls)][:times]
    for pause, base in zip(pauses, (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0), strict=False):
        assert base <= pause <= 2 * base
    logged = [record.getMessage() for record in caplog.records]
    assert len([line for line in logged if "handler Failing failed on nodes bad" in line]) == 1
    assert f"handler Failing took nodes bad after {times} failures" in logged


def test_a_change_is_delivered_at_once_to_a_handler_that_is_behind() -> None:
    failing = Failing("add", 2)

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.add_handler(failing)
        server.put("bad")
        await soon()
        server.put("bad")
        await soon()
        assert "bad" not in failing.objects
        server.put("bad")
        await soon()
        assert failing.objects["bad"] is informer.get("", "bad")
        assert [what for what, _, _ in failing.received] == ["add"]

    play(script)


def test_a_handler_that_was_removed_or_whose_informer_stopped_receives_nothing_again() -> None:
    removed, stopped = Failing("add", 1), Failing("add", 1)

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.add_handler(removed)
        server.put("bad")
        await soon()
        informer.remove_handler(removed)
        informer.add_handler(stopped)
        await asyncio.sleep(0)
        informer.stop()
        await asyncio.sleep(60)

    play(script)
    assert len(removed.called) == len(stopped.called) == 1


def test_a_late_handler_receives_what_is_known() -> None:
    late = View()

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.add_handler(late)
        assert late.received == [("initial", "n0", 11), ("initial", "n1", 12)]
        await soon()
        server.put("n0")
        await soon()
        informer.remove_handler(late)
        server.put("n1")
        await soon()
        assert late.received[2:] == [("update", "n0", 13)]

    play(script, nodes=2)


def test_indexes_follow_the_store() -> None:
    def by_zone(node: Any) -> list[str]:
        return [node.metadata.labels["zone"]]

    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        informer.add_index("zone", by_zone)
        with pytest.raises(ValueError, match="exists already"):
            informer.add_index("zone", by_zone)
        await soon()

        def in_zone(zone: str) -> list[str]:
            return [node.name for node in informer.by_index("zone", zone)]

        server.put("a")  # without the label: left out, and logged
        raw = {1: "z1", 2: "z2"}
        for number, zone in raw.items():
            metadata = {"name": "b", "labels": {"zone": zone}}
            server.version += 1
            item = Item(NODES, msgspec.json.encode({"metadata": metadata}), "", "b", "u", server.version)
            server.inject(WatchEvent("MODIFIED", item))
            await soon()
            assert in_zone(zone) == ["b"]
            assert in_zone(raw[3 - number]) == []
        server.inject(WatchEvent("DELETED", make_item(NODES, "", "b", server.version + 1)))
        await soon()
        assert in_zone("z2") == []
        assert in_zone("z9") == []
        with pytest.raises(KeyError):
            informer.by_index("rack", "r")

    play(script)


def test_stop_ends_the_run_and_wakes_who_waits() -> None:
    class Never(FakeServer):
        async def list(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        informer = Informer(Never(), PODS, rng=Random(1))
        task = asyncio.create_task(informer.run())
        waiter = asyncio.create_task(informer.wait_synced())
        await asyncio.sleep(1)
        informer.stop()
        await task
        assert await waiter is False
        assert informer.stopped
        with pytest.raises(RuntimeError, match="only once"):
            await informer.run()

    run_virtual(main())


def test_a_cancellation_from_outside_is_not_swallowed() -> None:
    async def main() -> None:
        informer = Informer(FakeServer(), NODES, rng=Random(1))
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_after_a_handler_stopped_the_informer_no_handler_receives_anything() -> None:
    received: list[str] = []

    async def main() -> None:
        server = FakeServer()
        informer = Informer(server, NODES, rng=Random(1))

        class Quitter(View):
            def on_add(self, obj: Any, is_initial: bool) -> None:
                received.append(obj.name)
                informer.stop()

        informer.add_handler(Quitter())
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        await soon()
        for name in "abc":
            server.put(name)
        await task

    run_virtual(main())
    assert received == ["a"]


def test_backoff_doubles_to_thirty_seconds_and_starts_over_after_quiet() -> None:
    backoff = Backoff(Random(3))
    now = 0.0
    base = 0.8
    for _ in range(10):
        delay = backoff.next_delay(now)
        assert base <= delay <= 2 * base
        now += delay
        base = min(2 * base, 30.0)
    assert base == 30.0
    assert backoff.next_delay(now + 121) <= 1.6


def test_tombstones_carry_the_key() -> None:
    assert DeletedFinalStateUnknown("ns/a", None).key == "ns/a"


def test_documents_are_kept_for_the_objects_that_are_wanted() -> None:
    """The JSON as it came, with fields that are not decoded; none for others, and none when an object has gone."""
    seen: list[bytes | None] = []

    async def main() -> None:
        server = FakeServer()
        for name in ("kept", "other"):
            server.put(name)
        informer = Informer(server, NODES, rng=Random(1))
        assert informer.document("kept") is None
        informer.keep_documents(lambda node: node.name != "other")
        task = asyncio.create_task(informer.run())
        assert await informer.wait_synced()
        seen.extend((informer.document("kept"), informer.document("other")))
        server.put("kept")
        await soon()
        seen.append(informer.document("kept"))
        server.remove("kept")
        await soon()
        seen.append(informer.document("kept"))
        informer.stop()
        await task

    run_virtual(main())
    first, other, second, gone = seen
    assert first is not None
    assert second is not None
    assert msgspec.json.decode(first)["metadata"]["name"] == "kept"
    assert first != second
    assert (other, gone) == (None, None)
