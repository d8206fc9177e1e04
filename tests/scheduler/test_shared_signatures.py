"""Pods with the same spec are signed once, unless a plugin signs more than the spec."""

from __future__ import annotations

from typing import Any

import msgspec

from builders import a_node, a_pod
from kubesched.api.types import ContainerImage, Pod
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.templates import PodTemplates
from kubesched.scheduler.search import Decision
from search_kit import SIGNING, House, make_plugin


def counting(**more: Any) -> tuple[type, list[str]]:
    signed: list[str] = []

    def sign(self: Any, info: Any) -> Any:
        signed.append(info.name)
        return tuple(sorted(info.labels.items())) if "signs_spec" not in more else ()

    return make_plugin("Counts", filter=lambda self, state, info, node: None, sign=sign, **more), signed


def named(pod: Pod, name: str, **labels: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, name=name, uid=name, labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)


def test_pods_with_one_spec_are_signed_once_when_all_plugins_sign_specs() -> None:
    plugin, signed = counting(signs_spec=True)
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    first, second, third = (templates.info(named(pod, name)) for name in ("one", "two", "three"))
    signatures = [house.search.sign(info) for info in (second, first, third)]
    assert signed == ["two"]
    assert signatures[0] == signatures[1] == signatures[2]


def test_a_plugin_that_signs_labels_is_called_for_every_pod() -> None:
    plugin, signed = counting()
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    infos = [templates.info(named(pod, name, app=name)) for name in ("one", "two")]
    assert house.search.sign(infos[0]) != house.search.sign(infos[1])
    assert signed == ["one", "two"]


def test_pods_that_do_not_concern_a_plugin_that_signs_labels_are_signed_once() -> None:
    plugin, signed = counting(concerns=lambda self, info: False)
    house, templates, pod = House([a_node("a")], plugins=(*SIGNING, plugin)), PodTemplates(), a_pod("one")
    infos = [templates.info(named(pod, name, app=name)) for name in ("one", "two")]
    assert house.search.sign(infos[0]) is house.search.sign(infos[1])
    assert not signed


def test_pods_that_differ_in_images_share_a_signature_until_a_node_has_one_of_them() -> None:
    house = House([a_node("a"), a_node("b")], plugins=SIGNING)
    infos = [PodInfo(a_pod(name, image=f"registry.example/{name}:1")) for name in ("one", "two")]
    assert house.search.sign(infos[0]) == house.search.sign(infos[1])
    image = ContainerImage(names=("registry.example/one:1",), size_bytes=900 << 20)
    house.cache.set_node(a_node("a", images=(image,)))
    assert house.search.sign(infos[0]) != house.search.sign(infos[1])
    found = house.search.find(infos[0])
    assert isinstance(found, Decision)
    assert found.node.name == "a"
    house.cache.set_node(a_node("a"))
    assert house.search.sign(infos[0]) == house.search.sign(infos[1])
