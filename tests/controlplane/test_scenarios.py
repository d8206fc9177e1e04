"""Every scenario against the embedded API server, and against etcd and kube-apiserver where they can be had."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from planes import ASSETS, ControlPlane, Embedded, KubeApiserver, missing_assets
from scenario_world import world
from scenarios import SCENARIOS, Scenario


@pytest.fixture(scope="module", params=["embedded", "kube-apiserver"])
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane, shared by the scenarios of this module."""
    folder = tmp_path_factory.mktemp("plane")
    made: ControlPlane
    if request.param == "embedded":
        made = Embedded(folder)
    elif why := missing_assets():
        pytest.skip(why)
    else:
        made = KubeApiserver(folder, Path(os.environ[ASSETS]))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(plane: ControlPlane, scenario: Scenario, tmp_path: Path) -> None:
    if scenario.only not in ("", plane.name):
        pytest.skip(f"only against {scenario.only}: {scenario.why}")
    if plane.minor < scenario.since:
        pytest.skip(f"only since Kubernetes 1.{scenario.since}, and this is 1.{plane.minor}")

    async def main() -> None:
        async with world(plane, tmp_path) as found:
            await scenario.run(found)

    asyncio.run(main())
