"""Full scans that an audit names are those that the scheduler's search makes."""

from __future__ import annotations

from typing import Any

import pytest
from audit_kit import HOSTNAME, PLUGINS, REQUIRED, Object, audited, decoded, names, node, pod

from kubesched.scheduler.config import default_config
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.framework import Plugin, Status
from kubesched.scheduler.loading import enable_plugins
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from search_kit import House

WEB = {"matchLabels": {"app": "web"}}


class Unsigned(Plugin):
    """Signs nothing."""

    name = "Unsigned"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Signed(Unsigned):
    """Signs every pod."""

    name = "Signed"

    def sign(self, pod: Any) -> str | None:
        return str(pod.labels.get("app", ""))


class SignsSome(Signed):
    """Signs pods of one label only."""

    name = "SignsSome"

    def sign(self, pod: Any) -> str | None:
        return "web" if pod.labels.get("app") == "web" else None


class Skips(Unsigned):
    """Signs nothing, but has nothing to do for pods without the label."""

    name = "Skips"

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Status | None:
        return None if pod.labels.get("app") == "web" else Status.skip()


class Ranks(Plugin):
    """Signs every pod, and normalises the scores of all nodes together."""

    name = "Ranks"

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0

    def normalize_score(self, state: Any, pod: Any, nodes: Any, scores: Any) -> Any:
        return scores

    def sign(self, pod: Any) -> str:
        return ""


def incoming() -> list[Object]:
    spread = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    apart = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": WEB}]}}
    return [
        pod("bare"),
        pod("web", labels={"app": "web"}),
        pod("spread", labels={"app": "web"}, topologySpreadConstraints=[spread]),
        pod("apart", labels={"app": "db"}, affinity=apart),
    ]


@pytest.mark.parametrize("plugin", [None, Unsigned, Signed, SignsSome, Skips, Ranks])
def test_full_scans_are_those_that_the_search_makes(plugin: type[Plugin] | None) -> None:
    registry = in_tree_registry()
    if plugin is not None:
        registry.register(plugin)
    config = enable_plugins(default_config(), [plugin.name] if plugin is not None else [])
    cluster = [node("n1", zone="a"), node("n2", zone="b"), *incoming()]
    scanned = names(audited(cluster, registry=registry, config=config), "pods-scanned-in-full")
    listed, pods = decoded(cluster)
    seen = {}
    for one in pods:
        more = [plugin] if plugin is not None else []
        house = House(listed, plugins=[*PLUGINS, *more])
        paths: list[Path] = []
        house.search.observer = paths.append
        for _ in range(3):  # an interaction layer is made when its keys are met again
            house.search.find(PodInfo(one))
        seen[one.metadata.name] = paths[-1]
    assert scanned == {name for name, path in seen.items() if path is Path.FULL_SCAN}
    assert bool(scanned) == (plugin in (Unsigned, SignsSome, Skips, Ranks))
