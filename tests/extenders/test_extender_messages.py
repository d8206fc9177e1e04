"""Messages to extenders, and how their answers are read; preemption by HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from extender_kit import Server, extenders_config

from builders import a_node, a_pod, info
from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.scheduler.extenders import messages
from kubesched.scheduler.extenders.http import HttpExtender, http_extenders
from kubesched.scheduler.extenders.interface import (
    ConnectedExtender,
    ExtenderError,
    InProcessExtender,
    in_run_time_order,
    is_involved,
)
from kubesched.scheduler.extenders.messages import UnreadableAnswerError
from kubesched.scheduler.framework.preemption import Victims
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo


def body(data: Any) -> bytes:
    return json.dumps(data).encode()


def test_nodes_and_node_names_exclude_each_other() -> None:
    pod, node = b'{"metadata":{"name":"p"}}', b'{"metadata":{"name":"n"}}'
    by_name = json.loads(messages.node_request(pod, ["n"], None))
    assert by_name == {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": ["n"]}
    whole = json.loads(messages.node_request(pod, None, [node]))
    assert whole["NodeNames"] is None
    assert whole["Nodes"]["items"] == [{"metadata": {"name": "n"}}]


def test_node_names_count_for_extenders_with_a_node_cache_only() -> None:
    both = body({"NodeNames": ["a"], "Nodes": {"items": [{"metadata": {"name": "b"}}]}})
    assert list(messages.filter_answer(both, node_cache_capable=True).names) == ["a"]
    assert list(messages.filter_answer(both, node_cache_capable=False).names) == ["b"]
    nodes_only = body({"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "b"}}]}})
    assert list(messages.filter_answer(nodes_only, node_cache_capable=True).names) == ["b"]


@pytest.mark.parametrize("answer", [None, {}, {"Nodes": None}, {"Nodes": {"items": None}}, {"NodeNames": ["a"]}])
def test_no_nodes_in_an_answer_means_that_none_passes(answer: Any) -> None:
    assert list(messages.filter_answer(body(answer), node_cache_capable=False).names) == []


def test_names_of_nodes_keep_their_case_while_keys_are_folded() -> None:
    answer = messages.filter_answer(
        body({"FAILEDNODES": {"Node-A": "Why"}, "failedAndUnresolvableNodes": {"B": "Not"}}), node_cache_capable=True
    )
    assert (answer.failed, answer.failed_and_unresolvable) == ({"Node-A": "Why"}, {"B": "Not"})


@pytest.mark.parametrize("answer", [7, [1], {"NodeNames": 1}, {"FailedNodes": {"a": 1}}, {"Nodes": {"items": [1]}}])
def test_an_unreadable_filter_answer(answer: Any) -> None:
    with pytest.raises(UnreadableAnswerError, match="the answer cannot be read"):
        messages.filter_answer(body(answer), node_cache_capable=True)


@pytest.mark.parametrize("answer", [{}, [{"Host": 1}], [{"Host": "a", "Score": 1 << 63}], [{"Score": 0.5}]])
def test_an_unreadable_score_answer(answer: Any) -> None:
    with pytest.raises(UnreadableAnswerError):
        messages.score_answer(body(answer))


def test_scores() -> None:
    assert messages.score_answer(b"null") == {}
    answer = [{"Host": "a", "Score": 1}, {"HOST": "A", "score": 2}, {"Host": "a", "Score": 3}]
    assert messages.score_answer(body(answer)) == {"a": 4, "A": 2}


@pytest.mark.parametrize("answer", [{"NodeNameToMetaVictims": []}, {"NodeNameToMetaVictims": {"n": {"Pods": 1}}}, 1])
def test_an_unreadable_preempt_answer(answer: Any) -> None:
    with pytest.raises(UnreadableAnswerError):
        messages.preempt_answer(body(answer))


NESTED = b'{"Error":' * 5000 + b"1" + b"}" * 5000
#: Nested as deep as a JSON reader takes it.
DEEP = b'{"Error":' + b"[" * 900 + b"]" * 900 + b"}"
DEEP_VICTIMS = b'{"NodeNameToMetaVictims":{"n1":{"Pods":' + b"[" * 900 + b"]" * 900 + b"}}}"


@pytest.mark.parametrize("text", [NESTED, DEEP, DEEP_VICTIMS, b'{"Error":"\xff\xfe"}', b"", b"<html>", b"[1e400]"])
@pytest.mark.parametrize(
    "read",
    [
        lambda text: messages.filter_answer(text, node_cache_capable=True),
        messages.score_answer,
        messages.refusal,
        messages.preempt_answer,
    ],
    ids=["filter", "prioritize", "bind", "preempt"],
)
def test_whatever_an_extender_sends_it_is_an_answer_or_unreadable(read: Any, text: bytes) -> None:
    with suppress(UnreadableAnswerError):
        found = read(text)
        assert not getattr(found, "names", found)  # an answer that says nothing


# -- preemption --------------------------------------------------------------------------------------------


class View:
    """A cluster of two nodes; n1 runs v1, v2 and v3."""

    def __init__(self) -> None:
        self.nodes = {name: NodeInfo(name, node=a_node(name)) for name in ("n1", "n2")}
        self.pods = {name: info(a_pod(name, uid=name)) for name in ("v1", "v2", "v3")}
        for pod in self.pods.values():
            self.nodes["n1"].add_pod(pod)

    def node(self, name: str) -> NodeInfo | None:
        return self.nodes.get(name)

    def pod_document(self, pod: Pod) -> bytes | None:
        return b'{"metadata":{"name":"p"},"spec":{"hostname":"whole"}}' if pod.name == "p" else None

    def node_document(self, node: Node) -> bytes | None:
        return None


def preempt(answer: Any, *, capable: bool = True) -> tuple[Any, Any]:
    """(request, result or error text) of a preemption with v1 and v2 as victims on n1."""
    view = View()
    given = {"n1": Victims((view.pods["v1"], view.pods["v2"]), 1)}

    async def main() -> tuple[Any, Any]:
        async with Server(preempt=lambda request: answer).listening() as server:
            config = extenders_config({"urlPrefix": server.url, "preemptVerb": "preempt", "nodeCacheCapable": capable})
            (extender,) = http_extenders(config.extenders)
            extender.connect(view)
            try:
                found: Any = await extender.process_preemption(info(a_pod("p")), given)
            except ExtenderError as error:
                found = str(error).replace(server.url, "URL")
            finally:
                await extender.close()
            return server.calls[0][1], found

    return asyncio.run(main())


def test_victims_by_uid() -> None:
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v3"}, {"UID": "v1"}], "NumPDBViolations": 2}}}
    request, found = preempt(answer)
    assert request["NodeNameToVictims"] is None
    assert request["NodeNameToMetaVictims"] == {"n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 1}}
    assert request["Pod"]["spec"] == {"hostname": "whole"}
    assert [pod.name for pod in found["n1"].pods] == ["v3", "v1"]
    assert found["n1"].pdb_violations == 2


def test_victims_as_whole_pods() -> None:
    request, found = preempt({"nodeNameToMetaVictims": {"n1": None}}, capable=False)
    assert request["NodeNameToMetaVictims"] is None
    victims = request["NodeNameToVictims"]["n1"]
    assert [pod["metadata"]["uid"] for pod in victims["Pods"]] == ["v1", "v2"]
    assert victims["NumPDBViolations"] == 1
    assert found["n1"].pods == ()


def test_a_victim_that_is_named_twice_is_evicted_once() -> None:
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}, {"UID": "v3"}, {"UID": "v1"}]}}}
    assert [pod.name for pod in preempt(answer)[1]["n1"].pods] == ["v1", "v3"]


def test_no_candidate_is_left() -> None:
    assert preempt({})[1] == {}


@pytest.mark.parametrize(
    ("victims", "message"),
    [
        (
            {"n1": {"Pods": [{"UID": "x"}]}},
            "extender: URL claims to preempt pod (UID: x) on node: n1, but the pod is not found on that node",
        ),
        ({"n7": {"Pods": []}}, 'extender: URL claims to preempt on node "n7", which is not found'),
    ],
)
def test_victims_that_do_not_exist(victims: Any, message: str) -> None:
    assert preempt({"NodeNameToMetaVictims": victims})[1] == message


# -- interest and order ------------------------------------------------------------------------------------


def extender(**fields: Any) -> HttpExtender:
    return http_extenders(extenders_config({"urlPrefix": "http://a", **fields}).extenders)[0]


@pytest.mark.parametrize("where", ["requests", "limits"])
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_interest_is_a_managed_resource_in_any_container(where: str, containers: str) -> None:
    managing = extender(managedResources=[{"name": "example.com/gpu"}], filterVerb="filter")
    spec = {containers: [{"name": "main", "resources": {where: {"example.com/gpu": "1"}}}]}
    wanting = PodInfo(from_builtins({"metadata": {"name": "p"}, "spec": spec}, Pod))
    assert managing.is_interested(wanting)
    assert not managing.is_interested(info(a_pod("q")))
    assert extender().is_interested(info(a_pod("q")))


def test_an_extender_that_only_binds_is_not_awaited_for_the_choice() -> None:
    pod = info(a_pod("p"))
    assert not is_involved([extender(bindVerb="bind")], pod)
    for verb in ("filterVerb", "prioritizeVerb", "preemptVerb"):
        assert is_involved([extender(**{verb: "x", "weight": 1})], pod)


def test_ignorable_extenders_come_last() -> None:
    given = [extender(ignorable=True), extender(weight=1), extender(ignorable=True, weight=2), extender(weight=3)]
    assert [one.weight for one in in_run_time_order(given)] == [1, 3, 0, 2]


def test_an_in_process_extender_offers_what_it_defines() -> None:
    class Scores(InProcessExtender):
        async def prioritize(self, pod: PodInfo, nodes: Any) -> dict[str, int]:
            return {}

    scores = Scores()
    assert scores.supports_prioritize
    assert not scores.supports_filter
    assert not scores.supports_preemption
    assert not scores.is_binder
    assert not isinstance(scores, ConnectedExtender)
    assert isinstance(extender(), ConnectedExtender)
