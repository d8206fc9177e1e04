"""Every view of the dashboard is free of what axe finds wrong for people with disabilities, dark and light, narrow and wide."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from browser_kit import AXE, Program, Window

pytest_plugins = ["browser_fixtures"]

if not AXE.is_file() and os.environ.get("KUBESCHED_BROWSER") != "required":
    pytest.skip("no axe-core: `make browser` installs it where there is npm", allow_module_level=True)

#: Each view with the part that has to be there first.
LIVE = {
    "/map": ("extremes", ""),
    "/map?as=table": ("view-map", "gpu-a"),
    "/map?pod=default/trainer&colour=verdict": ("legend", "taint"),
    "/queues": ("place-Unschedulable", "trainer"),
    "/pods": ("pod-table", ""),
    "/pod/default/trainer": ("explanation", "What would help"),
    "/node/large-a": ("node-pods", "web"),
    "/time": ("happenings", ""),
    "/what-if": ("kind", ""),
}
RECORDED = {
    "/map?at=80": ("transport", ""),
    "/pod/default/giant?at=80": ("explanation", "asks for 5"),
    "/time?at=80": ("chart-queue", ""),
}
EMPTY = {"/map": ("view-map", "no nodes"), "/queues": ("view-queues", "No pod waits"), "/pods": ("view-pods", "No pod")}


def wrong(window: Window, views: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return what is wrong with each view: rules of axe, and a page that is wider than the window."""
    found: list[str] = []
    for address, (part, text) in views.items():
        window.go(address)
        window.see(part, text)
        wide = window.script("return document.documentElement.scrollWidth - innerWidth")
        faults = [*window.violations(), *([f"{wide} pixels too wide"] if wide > 0 else [])]
        found += [f"{address}: {fault}" for fault in faults]
    return found


@pytest.mark.parametrize(
    ("theme", "width"), [("dark", 360), ("light", 360), ("dark", 1400), ("light", 1400), ("light", 3840)]
)
def test_axe_finds_nothing_in_any_view_of_a_cluster(theme: str, width: int, window: Window, live: Program) -> None:
    window.show(theme, width)
    window.open(live)
    assert not (found := wrong(window, LIVE)), "\n".join(found)


@pytest.mark.parametrize(("theme", "width"), [("dark", 1400), ("light", 360)])
def test_axe_finds_nothing_in_any_view_of_two_recordings(theme: str, width: int, window: Window, two: Program) -> None:
    window.show(theme, width)
    window.open(two)
    assert not (found := wrong(window, RECORDED)), "\n".join(found)


@pytest.mark.parametrize(("theme", "width"), [("dark", 360), ("light", 1400)])
def test_axe_finds_nothing_where_there_is_nothing_to_see(
    theme: str, width: int, window: Window, empty: Program
) -> None:
    window.show(theme, width)
    window.open(empty)
    found = wrong(window, EMPTY)
    window.expected = ["401"]
    window.driver.delete_all_cookies()
    window.driver.refresh()
    window.see("refused")
    found += window.violations()
    window.driver.get(empty.links[-1])
    assert not found, "\n".join(found)
