"""The dashboard of ``kubesched view`` in a browser: a recording is moved through, two are compared, hostile files do no harm."""

from __future__ import annotations

import re

import pytest
from browser_kit import Keys, Program, Window, pod_address, until
from clusters import EVIL

pytest_plugins = ["browser_fixtures"]


def moment(window: Window) -> float:
    """Return the moment in the address, in seconds since the epoch or the start."""
    found = re.search(r"[?&]at=([\d.]+)", window.address)
    return float(found[1]) if found else float("inf")


def on_nodes(window: Window) -> int:
    return int(window.text("on-nodes-0"))


def test_the_slider_moves_through_a_simulation_by_keys(window: Window, two: Program) -> None:
    window.open(two)
    slider = window.see("slider")
    slider.send_keys(Keys.HOME)
    until("the start in the address", lambda: moment(window) == 0)
    until("one pod at the start", lambda: on_nodes(window) <= 1)
    slider.send_keys(*[Keys.PAGE_UP] * 3)
    until("a later moment", lambda: moment(window) > 20)
    until("more pods", lambda: on_nodes(window) >= 3)
    later = window.text("clock")
    window.driver.refresh()
    assert window.see("clock", later)
    until("as many pods", lambda: on_nodes(window) >= 3)


def test_a_simulation_is_played_and_paused(window: Window, two: Program) -> None:
    window.open(two, "/map?at=60")
    until("the moment", lambda: window.text("clock") == "0:01:00")
    window.choose("speed", "10")
    window.click("play")
    window.see("happenings", "default/urgent")
    until("the clock goes on", lambda: window.text("clock") > "0:01:12")
    window.click("play")
    stopped = moment(window)
    assert 70 < stopped < 183
    assert window.see("play").get_attribute("aria-label") == "Play"


def test_decisions_explain_a_pod_at_any_moment(window: Window, decisions: Program) -> None:
    window.open(decisions)
    window.see("slider").send_keys(Keys.HOME)
    start = until("the start in the address", lambda: moment(window) < float("inf") and moment(window))
    window.go(f"/map?at={start + 75}")
    until("the moment", lambda: window.text("clock") == "00:01:15")
    window.go(f"/pod/default/urgent?at={start + 75}")
    assert "Insufficient cpu" in window.see("explanation", "default/job").text
    window.see("life", "room was made by the eviction of")
    window.go(f"/pod/default/giant?at={start + 75}")
    window.see("explanation", "asks for 5, but the largest of these nodes has 4")
    window.click("show-on-map")
    window.see("legend", "Insufficient cpu")


def test_two_runs_are_shown_side_by_side(window: Window, two: Program) -> None:
    window.open(two, "/map?at=60")
    for run in (0, 1):
        assert window.see(f"map-{run}", "result.json" if run == 0 else "hostile.json")
    assert len(window.all("[data-testid=map]")) == 2
    window.go("/time?at=60")
    legend = window.see("chart-throughput", "hostile.json").text
    assert "result.json" in legend
    window.choose("run", "1")
    window.click("nav-pods")
    window.see("pod-table", EVIL)


@pytest.mark.parametrize(
    "address",
    [
        "/map?as=table&at=80",
        "/pods?at=80",
        "/queues?at=80",
        "/time?at=16",
        f"{pod_address('default', EVIL)}?at=80",
        "/pod/default/giant?at=80",
    ],
)
def test_names_in_a_file_are_texts_and_never_run(address: str, window: Window, two: Program) -> None:
    window.open(two)
    window.expected = ["404"]
    window.go(f"{address}&run=1")
    until("the name", lambda: "console.error('harm')</script>" in window.find("main").text)
    assert window.all("main script, main img") == []


def test_a_hostile_node_is_opened_from_the_map(window: Window, two: Program) -> None:
    window.open(two, "/map?as=table&run=1&at=80")
    window.follow(EVIL)
    assert EVIL in window.text("node-name")
    assert window.script("return document.title").startswith(EVIL)
    window.driver.back()
    window.write("find-node", EVIL)
    assert window.all("main script, main img") == []
