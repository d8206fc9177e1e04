"""Every path of the API over HTTP, with a real cluster behind it: each answer is its document."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from site_kit import Client, serving

from builders import create_nodes
from kubesched.api.kinds import PODS
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import node_template
from kubesched.dashboard.live import Live
from kubesched.dashboard.schema import (
    Dashboard,
    Fault,
    NodePage,
    Played,
    PodList,
    PodPage,
    Queues,
    Series,
    State,
    Verdicts,
)
from kubesched.explain.report import Explanation
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

DOCUMENTS: dict[str, Any] = {
    "dashboard": Dashboard,
    "runs/0/state": State,
    "runs/0/series": Series,
    "runs/0/queues": Queues,
    "runs/0/pods?q=p&limit=5": PodList,
    "runs/0/pods?state=Unschedulable": PodList,
    "runs/0/pods/default/placed": PodPage,
    "runs/0/pods/default/huge": PodPage,
    "runs/0/nodes/hollow-00000": NodePage,
    "runs/0/verdicts/default/placed": Verdicts,
    "runs/0/verdicts/default/huge": Verdicts,
    "runs/0/explain/pods/default/placed?node=hollow-00001": Explanation,
    "runs/0/explain/pods/default/huge": Explanation,
    "runs/0/explain/pending": Explanation,
    "runs/0/explain/nodes/hollow-00000": Explanation,
    "runs/0/explain/podgroups/default/none": Fault,
    "runs/0/pods/default/%3Cscript%3E": Fault,
    "runs/0/played?from=0&to=1": Played,
    "runs/0/what-if": Fault,
    "runs/0/state?at=1": Fault,
}


def pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


def test_each_path_answers_with_its_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def check(client: Client) -> None:
        for path, kind in DOCUMENTS.items():
            status, body, _ = await client.get(path)
            assert (status == 200) is (kind is not Fault), (path, body)
            document = msgspec.convert(body, kind)
            if kind is not Explanation:  # it leaves out what is empty
                assert msgspec.to_builtins(document) == body, path

    async def main() -> None:
        watchers = Watchers(None, annotate_why=False, event_why=False, simulator_results=False)
        live = Live("test", "embedded")
        observers = [*watchers.observers, live.observer]
        embedded = Embedded(default_config(), in_tree_registry(), clock=RealClock(), observers=observers)
        watchers.attach(embedded.scheduler, embedded.port, objects=embedded.objects)
        live.attach(lambda: embedded.scheduler, watchers)
        create_nodes(embedded.store, 2, node_template(cpu="4"))
        async with embedded.running(), serving(live) as client:
            for one in (pod("placed", "1"), pod("huge", "99")):
                embedded.store.create(PODS, "default", one)
            async with asyncio.timeout(30):
                while live.observer.bound < 1 or live.observer.failed < 1 or not embedded.scheduler.is_idle:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await check(client)

    asyncio.run(main())
