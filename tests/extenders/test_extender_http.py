"""Conversations with a real HTTP server: every verb, and wrong answers of every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from aiohttp import web
from extender_kit import GPU, Server, a_pod, cluster

from kubesched.scheduler.extenders.http import http_extenders


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def names_of(request: Any) -> list[str]:
    return sorted(request["NodeNames"] or [node["metadata"]["name"] for node in request["Nodes"]["items"]])


# -- what is sent, and what comes of it --------------------------------------------------------------------


def test_filter_with_whole_nodes() -> None:
    """Pods and nodes arrive with fields that the scheduler does not read itself."""

    def keep_n2(request: Any) -> Any:
        kept = [node for node in request["Nodes"]["items"] if node["metadata"]["name"] == "n2"]
        return {"Nodes": {"items": kept}, "NodeNames": None, "FailedNodes": {"n1": "busy"}, "Error": ""}

    async def main() -> None:
        async with (
            Server(filter=keep_n2).listening() as server,
            cluster({"urlPrefix": server.url + "/", "filterVerb": "filter"}) as found,
        ):
            found.create(a_pod("p"))
            assert await found.bound("p") == "n2"
            verb, request = server.calls[0]
            assert verb == "filter"
            assert set(request) == {"Pod", "Nodes", "NodeNames"}
            assert request["NodeNames"] is None
            assert request["Pod"]["metadata"]["name"] == "p"
            assert request["Pod"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
            node = request["Nodes"]["items"][0]
            assert node["metadata"]["annotations"] == {"devices": "gpu-0"}
            assert node["status"]["capacity"][GPU] == "2"
            assert server.headers[0]["Content-Type"] == "application/json"

    run(main())


def test_filter_with_node_names_and_keys_in_any_case() -> None:
    async def main() -> None:
        def keep_n1(request: Any) -> Any:
            return {"nodenames": ["n1"], "failednodes": {"n2": "busy"}}

        async with (
            Server(filter=keep_n1).listening() as server,
            cluster({"urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": True}) as found,
        ):
            found.create(a_pod("p"))
            assert await found.bound("p") == "n1"
            request = server.calls[0][1]
            assert request["Nodes"] is None
            assert sorted(request["NodeNames"]) == ["n1", "n2"]

    run(main())


def test_rejections_are_in_the_message() -> None:
    answer = {"NodeNames": [], "FailedNodes": {"n1": "busy"}, "FailedAndUnresolvableNodes": {"n2": "no device"}}

    async def main() -> None:
        async with (
            Server(filter=lambda request: answer).listening() as server,
            cluster({"urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": True}) as found,
        ):
            found.create(a_pod("p"))
            condition = await found.failed("p")
            assert condition.message == "0/2 nodes are available: 1 busy, 1 no device. no new claims to deallocate"
            assert condition.reason == "Unschedulable"

    run(main())


def test_prioritize_adds_up() -> None:
    """n1: 4 + 1 by one extender of weight 1. n2: 2 by one of weight 4."""

    async def main() -> None:
        def one(request: Any) -> Any:
            return [{"Host": "n1", "Score": 4}, {"Host": "n1", "Score": 1}, {"Host": "elsewhere", "Score": 10}]

        async with (
            Server(prioritize=one, filter=lambda request: {"Nodes": request["Nodes"]}).listening() as first,
            Server(rank=lambda request: [{"host": "n2", "score": 2}]).listening() as second,
            cluster(
                {"urlPrefix": first.url, "prioritizeVerb": "prioritize", "weight": 1, "filterVerb": "filter"},
                {"urlPrefix": second.url, "prioritizeVerb": "rank", "weight": 4, "nodeCacheCapable": True},
            ) as found,
        ):
            found.create(a_pod("p"))
            assert await found.bound("p") == "n2"
            assert [verb for verb, _ in first.calls] == ["filter", "prioritize"]
            assert names_of(second.calls[0][1]) == ["n1", "n2"]

    run(main())


def test_bind() -> None:
    async def main() -> None:
        server = Server()

        async def bind(request: Any) -> Any:
            assert set(request) == {"PodName", "PodNamespace", "PodUID", "Node"}
            found.store.bind(request["PodNamespace"], request["PodName"], request["PodUID"], request["Node"])
            return {"Error": ""}

        server.verbs["bind"] = bind
        async with server.listening(), cluster({"urlPrefix": server.url, "bindVerb": "bind"}) as found:
            found.create(a_pod("p"))
            assert await found.bound("p") == server.calls[0][1]["Node"]

    run(main())


def test_a_refused_binding_is_retried() -> None:
    async def main() -> None:
        server = Server()

        async def bind(request: Any) -> Any:
            if len(server.calls) == 1:
                return {"Error": "device gone"}
            found.store.bind(request["PodNamespace"], request["PodName"], request["PodUID"], request["Node"])
            return {}

        server.verbs["bind"] = bind
        async with server.listening(), cluster({"urlPrefix": server.url, "bindVerb": "bind"}) as found:
            found.create(a_pod("p"))
            assert (await found.failed("p")).message == "device gone"
            await found.bound("p")

    run(main())


def test_a_binding_carried_out_without_an_answer_is_not_repeated() -> None:
    """The extender binds, and then the connection breaks: the pod has its node, nobody tries again."""

    async def main() -> None:
        server = Server()

        async def bind(request: Any) -> Any:
            found.store.bind(request["PodNamespace"], request["PodName"], request["PodUID"], request["Node"])
            return web.Response(status=500)

        server.verbs["bind"] = bind
        async with server.listening(), cluster({"urlPrefix": server.url, "bindVerb": "bind"}) as found:
            found.create(a_pod("p"))
            node = await found.bound("p")
            await found.until(lambda: found.embedded.scheduler.is_idle, "the end of the attempt")
            assert len(server.calls) == 1
            assert [pod.spec.node_name for pod in found.embedded.scheduler.cache.pods.values()] == [node]

    run(main())


# -- interest ----------------------------------------------------------------------------------------------


def test_only_pods_with_a_managed_resource_are_sent_and_fit_leaves_it_alone() -> None:
    """Both pods want more of the resource than any node has, and the scheduler is to ignore it."""

    async def main() -> None:
        async with (
            Server(filter=lambda request: {"NodeNames": ["n2"]}).listening() as server,
            cluster(
                {
                    "urlPrefix": server.url,
                    "filterVerb": "filter",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": GPU, "ignoredByScheduler": True}],
                }
            ) as found,
        ):
            wanting = a_pod("p", gpu=True)
            resources = wanting["spec"]["containers"][0]["resources"]
            resources["requests"][GPU] = resources["limits"][GPU] = "100"
            found.create(wanting, a_pod("q"))
            assert await found.bound("p") == "n2"
            await found.bound("q")
            assert [request["Pod"]["metadata"]["name"] for _, request in server.calls] == ["p"]

    run(main())


# -- wrong answers -----------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any, str]] = [
    ("code", lambda request: web.Response(status=500), "failed filter with extender at URL {url}/filter, code 500"),
    (
        "created",
        lambda request: web.json_response({}, status=201),
        "failed filter with extender at URL {url}/filter, code 201",
    ),
    ("garbage", lambda request: web.Response(text="<html>"), "the answer cannot be read: not valid JSON"),
    ("empty", lambda request: web.Response(text=""), "the answer cannot be read: not valid JSON"),
    ("a number", lambda request: 7, "the answer cannot be read: Expected `object`, got `int`"),
    ("wrong type", lambda request: {"NodeNames": "n1"}, "Expected `array"),
    ("its error", lambda request: {"Error": "the database is down"}, "the database is down"),
    (
        "unknown node",
        lambda request: {"NodeNames": ["n7"]},
        'extender "{url}" claims a filtered node "n7" which is not found in the input node list',
    ),
]


@pytest.mark.parametrize(("answer", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
def test_a_wrong_answer_to_filter(answer: Any, message: str, ignorable: bool) -> None:
    """The pod is tried again, and gets its node once the extender answers properly; an ignorable one changes nothing."""

    async def main() -> None:
        server = Server(filter=answer)
        async with (
            server.listening(),
            cluster(
                {
                    "urlPrefix": server.url,
                    "filterVerb": "filter",
                    "nodeCacheCapable": True,
                    "ignorable": ignorable,
                    "managedResources": [{"name": GPU}],
                }
            ) as found,
        ):
            found.create(a_pod("p", gpu=True), a_pod("q"))
            await found.bound("q")
            if ignorable:
                await found.bound("p")
                return
            condition = await found.failed("p")
            assert condition.reason == "SchedulerError"
            assert message.replace("{url}", server.url) in condition.message
            server.verbs["filter"] = lambda request: {"NodeNames": ["n1"]}
            assert await found.bound("p") == "n1"

    run(main())


async def _close(request: Any) -> Any:
    raise ConnectionResetError


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda request: asyncio.sleep(60), 'Post "{url}/filter": no answer within 0.05s'),
        (None, 'Post "{url}/filter": '),
    ],
    ids=["slow", "closed"],
)
def test_an_extender_that_does_not_answer(answer: Any, message: str) -> None:
    async def main() -> None:
        server = Server(filter=answer)
        async with server.listening():
            closing = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
            url = server.url
            if answer is None:
                url = f"http://127.0.0.1:{closing.sockets[0].getsockname()[1]}/ext"
            async with (
                closing,
                cluster(
                    {
                        "urlPrefix": url,
                        "filterVerb": "filter",
                        "httpTimeout": "50ms",
                        "managedResources": [{"name": GPU}],
                    }
                ) as found,
            ):
                found.create(a_pod("p", gpu=True), a_pod("q"))
                await found.bound("q")
                condition = await found.failed("p")
                assert condition.reason == "SchedulerError"
                assert condition.message.startswith(message.replace("{url}", url))

    run(main())


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.extenders.http._MOST_ANSWER", 1_000_000)
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while sent < 500_000_000:
                writer.write(b" " * 65_536)
                sent += 65_536
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ext"
        async with server, cluster({"urlPrefix": url, "filterVerb": "filter", "httpTimeout": "20s"}) as found:
            found.create(a_pod("p"))
            message = (await found.failed("p")).message
            assert message.startswith(f'Post "{url}/filter": the answer is longer than 100')
            assert sent < 100_000_000

    run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        async with Server().listening() as server:
            url = server.url
        async with cluster({"urlPrefix": url, "filterVerb": "filter"}) as found:
            found.create(a_pod("p"))
            assert (await found.failed("p")).message == f'Post "{url}/filter": connection refused'

    run(main())


@pytest.mark.parametrize(
    "answer", [lambda request: web.Response(status=500), lambda request: [{"Host": "n1", "Score": "x"}]]
)
def test_a_wrong_answer_to_prioritize_costs_nothing_but_its_scores(answer: Any) -> None:
    async def main() -> None:
        async with (
            Server(prioritize=answer).listening() as wrong,
            Server(prioritize=lambda request: [{"Host": "n2", "Score": 5}]).listening() as right,
            cluster(
                {"urlPrefix": wrong.url, "prioritizeVerb": "prioritize", "weight": 9},
                {"urlPrefix": right.url, "prioritizeVerb": "prioritize", "weight": 1},
            ) as found,
        ):
            found.create(a_pod("p"))
            assert await found.bound("p") == "n2"

    run(main())


def test_a_kept_connection_that_the_server_closes_is_opened_again() -> None:
    """The first answer closes its connection without saying so."""

    async def main() -> None:
        requests = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            requests += 1
            if requests != 2:  # the second is read, and never answered
                body = json.dumps({"NodeNames": ["n1"]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ext"
        async with server, cluster({"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}) as found:
            found.create(a_pod("p"))
            await found.bound("p")
            found.create(a_pod("q"))
            assert await found.bound("q") == "n1"
            assert requests == 3
            assert not found.condition("q").message

    run(main())


def test_requests_larger_than_a_mebibyte() -> None:
    """Bytes of that size in one piece would make aiohttp warn, and warnings are errors here."""

    async def main() -> None:
        server = Server(filter=lambda request: {"NodeNames": None, "Nodes": request["Nodes"]})
        async with server.listening(), cluster({"urlPrefix": server.url, "filterVerb": "filter"}) as found:
            pod = a_pod("p")
            pod["metadata"]["annotations"] = {f"note-{number}": "x" * 50_000 for number in range(4)}
            for number in range(3, 10):
                node = {"metadata": {"name": f"n{number}", "annotations": {"big": "x" * 200_000}}}
                found.store.create(_nodes(), "", node)
            await found.until(lambda: len(found.embedded.scheduler.cache.table) == 9, "all nodes")
            found.create(pod)
            await found.bound("p")
            assert len(server.calls) == 1

    run(main())


def _nodes() -> Any:
    from kubesched.api.kinds import NODES

    return NODES


def test_several_extenders_while_one_is_slow() -> None:
    """Pods without interest are all bound before the slow extender has answered once."""

    async def main() -> None:
        answered = asyncio.Event()

        async def slow(request: Any) -> Any:
            await answered.wait()
            return {"NodeNames": ["n1"]}

        async with (
            Server(filter=slow).listening() as server,
            cluster(
                {
                    "urlPrefix": server.url,
                    "filterVerb": "filter",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": GPU}],
                }
            ) as found,
        ):
            found.create(a_pod("p", gpu=True))
            await found.until(lambda: server.calls, "the call")
            found.create(*(a_pod(f"q{number}", cpu="1m") for number in range(50)))
            for number in range(50):
                await found.bound(f"q{number}")
            assert not found.pod("p").spec.node_name
            answered.set()
            assert await found.bound("p") == "n1"

    run(main())


def test_name_and_order_of_configured_extenders() -> None:
    from extender_kit import extenders_config

    config = extenders_config({"urlPrefix": "http://a/"}, {"urlPrefix": "http://b", "weight": 3, "ignorable": True})
    first, second = http_extenders(config.extenders)
    assert (first.name, first.supports_filter, first.is_binder) == ("http://a/", False, False)
    assert (second.name, second.weight, second.ignorable) == ("http://b", 3, True)
