"""Pods with the same spec are asked for once, except by plugins that read more of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from builders import a_node, a_pod
from kubesched.api.types import ContainerImage, Pod
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.templates import PodTemplates
from search_kit import SIGNING, House, make_asking, rows_like


def counting(*, by_spec: bool = False, concerned: bool = True) -> tuple[type, list[str]]:
    """A plugin whose questions are about labels unless they are ``by_spec``, and the pods that it was asked for."""
    asked: list[str] = []
    plugin: Any = make_asking("Counts", verdicts=rows_like(0, np.uint64), by_spec=by_spec)
    make = plugin.ask

    def ask(self: Any, pod: PodInfo, nodes: Any) -> Any:
        asked.append(pod.name)
        if not concerned:
            return None
        question = make(self, pod, nodes)
        question.key = () if by_spec else tuple(sorted(pod.labels.items()))
        return question

    plugin.ask = ask
    return plugin, asked


def named(pod: Pod, name: str, **labels: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, name=name, uid=name, labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)


def test_pods_with_one_spec_are_asked_for_once_by_a_plugin_that_reads_no_more() -> None:
    plugin, signed = counting(by_spec=True)
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    first, second, third = (templates.info(named(pod, name)) for name in ("one", "two", "three"))
    signatures = [house.search.ask(info).signature for info in (second, first, third)]
    assert signed == ["two"]
    assert signatures[0] == signatures[1] == signatures[2]


def test_a_plugin_that_reads_labels_is_asked_for_every_pod() -> None:
    plugin, signed = counting()
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    infos = [templates.info(named(pod, name, app=name)) for name in ("one", "two")]
    assert house.search.ask(infos[0]).signature != house.search.ask(infos[1]).signature
    assert signed == ["one", "two"]


def test_pods_that_do_not_concern_a_plugin_share_a_signature() -> None:
    plugin, _ = counting(concerned=False)
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    infos = [templates.info(named(pod, name, app=name)) for name in ("one", "two")]
    assert house.search.ask(infos[0]) is house.search.ask(infos[1])


def test_pods_are_asked_for_again_when_a_plugin_says_so() -> None:
    plugin, asked = counting(by_spec=True)
    house, info = House([a_node("a")], plugins=(*SIGNING, plugin)), PodInfo(a_pod("one"))
    for _ in range(2):
        house.search.ask(info)
    house.search.table.ask_again()
    house.search.ask(info)
    assert asked == ["one", "one"]


def test_pods_that_differ_in_images_share_a_signature_until_a_node_has_one_of_them() -> None:
    house = House([a_node("a"), a_node("b")], plugins=SIGNING)
    infos = [PodInfo(a_pod(name, image=f"registry.example/{name}:1")) for name in ("one", "two")]
    assert house.search.ask(infos[0]).signature == house.search.ask(infos[1]).signature
    image = ContainerImage(names=("registry.example/one:1",), size_bytes=900 << 20)
    house.cache.set_node(a_node("a", images=(image,)))
    assert house.search.ask(infos[0]).signature != house.search.ask(infos[1]).signature
    found = house.search.find(infos[0])
    assert isinstance(found, Decision)
    assert found.node.name == "a"
    house.cache.set_node(a_node("a"))
    assert house.search.ask(infos[0]).signature == house.search.ask(infos[1]).signature
