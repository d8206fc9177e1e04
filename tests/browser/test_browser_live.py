"""The dashboard of ``kubesched up`` in a browser: what a person looks for is found, and what happens is seen."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest
from browser_kit import AXE, Keys, Program, Window, until
from clusters import EVIL, pod, pod_spec
from selenium.webdriver.common.by import By

pytest_plugins = ["browser_fixtures"]

PODS = "/api/v1/namespaces/default/pods"


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_link_opens_the_page_once_and_the_browser_stays_logged_in(window: Window, live: Program) -> None:
    link = live.links[-1]
    window.driver.delete_all_cookies()
    window.driver.get(link)
    window.program = live
    window.see("map")
    assert "key=" not in window.driver.current_url, "a link in the address would be copied with it"
    assert "live" in window.see("connection", "live").text
    until("another link", lambda: live.links[-1] != link)

    window.driver.delete_all_cookies()
    window.expected = ["401"]
    window.driver.get(link)
    assert "Open the link that the command printed" in window.text("refused")
    assert status_of(f"{live.origin}/ui/api/v1/dashboard") == 401

    window.driver.get(live.links[-1])
    window.see("map")
    window.driver.refresh()
    window.see("map")


def test_the_map_shows_all_nodes_by_zone_in_their_colours(window: Window, live: Program) -> None:
    window.open(live)
    label = window.see("map").get_attribute("aria-label") or ""
    assert "7 nodes" in label
    colours = """const canvas = document.querySelector("[data-testid=map]");
        const seen = new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer));
        return canvas.width > 500 && seen.size"""
    until("several colours", lambda: (window.script(colours) or 0) > 5)
    assert [name in window.text("extremes") for name in ("large-a", "large-b", "large-c")] == [True] * 3
    window.click("as-table")
    window.find("tbody th", "gpu-a")


def test_a_pending_pod_is_found_and_its_reasons_lead_to_a_node_and_back(window: Window, live: Program) -> None:
    window.open(live)
    window.click("nav-pods")
    window.write("pod-search", "train")
    until("one pod", lambda: len(window.all('[data-testid="pod-table"] tbody tr')) == 1)
    window.follow("default/trainer")
    why = window.see("explanation", "What would help").text
    assert "cpu: asks for 12" in why
    assert "nodeSelector size=cpu-8" in why
    assert "rejected" in window.text("life")

    window.follow("gpu-a")
    assert window.text("node-name") == "gpu-a"
    assert "dedicated=gpu:NoSchedule" in window.text("view-node")
    window.driver.back()
    assert "trainer" in window.text("pod-name")

    window.click("show-on-map")
    assert "untolerated taint" in window.see("legend", "untolerated taint").text
    assert "pod=default%2Ftrainer" in window.address


def test_the_scores_of_a_placed_pod_are_shown_and_another_node_is_compared(window: Window, live: Program) -> None:
    web = next(each for each in live.request(PODS)["items"] if each["metadata"]["name"].startswith("web"))
    window.open(live, f"/pod/default/{web['metadata']['name']}")
    window.see("scores", web["spec"]["nodeName"])
    window.see("alternative", " point")
    window.write("compare", "gpu-a", Keys.ENTER)
    assert "dedicated=gpu" in window.see("alternative", "gpu-a does not fit").text


def test_the_theme_is_switched_and_kept(window: Window, live: Program) -> None:
    window.open(live)
    theme = "return document.documentElement.dataset.theme"
    before = window.script(theme)
    window.click("theme")
    after = window.script(theme)
    assert {before, after} == {"dark", "light"}
    window.driver.refresh()
    window.see("map")
    assert window.script(theme) == after
    window.click("theme")
    assert window.script(theme) == before


def test_what_happens_is_seen_at_once(window: Window, live: Program) -> None:
    window.open(live)
    window.see("connection", "live")
    live.request(PODS, pod("newcomer", pod_spec("2", nodeName="")))
    assert "newcomer" in window.see("happenings", "default/newcomer").text
    # A page that is opened later has it among what changed before a time.
    window.driver.refresh()
    window.go("/time")
    window.see("happenings", "since the page is open")
    set_time = "const [field, time] = arguments; field.value = time; field.dispatchEvent(new Event('change'))"
    window.script(set_time, window.see("around"), time.strftime("%H:%M:%S"))
    window.choose("look-back", "600")
    window.see("happenings", "default/newcomer")
    live.request(PODS, pod("giant", pod_spec("200")))
    window.go("/queues")
    assert "Insufficient cpu" in window.see("place-Unschedulable", "default/giant").text
    for name in ("newcomer", "giant"):
        live.request(f"{PODS}/{name}", {"gracePeriodSeconds": 0}, "DELETE")
    until("the pod is gone from the queue", lambda: "default/giant" not in window.text("place-Unschedulable"))


@pytest.mark.parametrize(
    "address", ["/node/small-a", "/pod/default/evil", "/pods?q=evil", "/pod/default/evil%3Cscript%3E"]
)
def test_texts_of_users_are_shown_as_they_are_and_never_run(address: str, window: Window, live: Program) -> None:
    window.open(live)
    window.expected = ["404"]
    window.go(address)
    until("the text", lambda: "<script>" in window.find("main").text)
    if "%3C" not in address:
        assert EVIL.replace("\\", "") in window.find("main").text
    assert window.all("main script, main img") == []


def test_map_and_search_are_used_by_keys_alone(window: Window, live: Program) -> None:
    window.open(live)
    window.see("extremes", "large-a")
    window.driver.refresh()
    window.see("extremes", "large-a")
    reached: list[str] = []
    while window.focused != "map" and len(reached) < 60:
        window.press(Keys.TAB)
        reached.append(window.focused)
    assert window.focused == "map", reached
    assert {"nav-map", "theme", "group", "colour", "find-node", "zoom-in", "as-table"} <= set(reached)
    window.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    spoken = until(
        "a node that is read out",
        lambda: window.script("return document.querySelector('.map-box [aria-live]').textContent"),
    )
    window.press(Keys.ENTER)
    assert spoken.startswith(window.text("node-name"))
    assert window.driver.switch_to.active_element.tag_name == "h1", "the focus goes on at the new heading"

    window.go("/map")
    window.write("find-node", "large-c", Keys.ENTER)
    map_ = window.see("map")
    map_.send_keys("0", "+", "-", Keys.ESCAPE)
    window.press(Keys.SHIFT + Keys.TAB)
    assert window.focused == "as-table"
    window.press(Keys.SPACE)
    window.find("tbody th", "gpu-a")


def test_the_failure_of_a_zone_is_tried_and_changes_nothing(window: Window, live: Program) -> None:
    window.open(live, "/what-if")
    window.choose("kind", "fail")
    window.choose("value", "zone-b")
    window.click("add-proposal")
    window.see("proposals", "zone-b")
    window.click("try")
    assert "large-b, small-b fail" in window.see("outcome", "pods without a node").text
    assert int(window.text("outcome-moved")) > 0
    window.see("preview", "Then")
    for theme, width in (("light", 1400), ("dark", 360)) if AXE.is_file() else ():
        window.show(theme, width)
        assert window.violations() == []
    assert len(live.request("/api/v1/nodes")["items"]) == 7
    assert not any(each["spec"].get("unschedulable") for each in live.request("/api/v1/nodes")["items"])


def test_a_drain_is_tried_and_then_done(window: Window, live: Program) -> None:
    window.open(live, "/what-if")
    window.choose("kind", "drain")
    window.write("node-input", "large-c")
    window.click("add-proposal")
    window.click("try")
    moved = int(until("the outcome", lambda: window.text("outcome-moved")))
    assert moved > 0
    window.click("do-it")
    window.click("confirm")
    window.see("applied", "large-c")
    assert live.request("/api/v1/nodes/large-c")["spec"]["unschedulable"] is True
    pods = "/api/v1/pods?fieldSelector=spec.nodeName=large-c"
    until("the pods are gone", lambda: not live.request(pods)["items"])
    window.go("/map?as=table")
    window.find("tr", "Cordoned")
    live.request("/api/v1/nodes/large-c", {"spec": {"unschedulable": None}}, "PATCH")


def test_the_page_comes_back_by_itself_after_a_restart(window: Window, live: Program) -> None:
    window.open(live)
    window.see("connection", "live")
    window.expected = ["ERR_", "Failed to load resource"]
    live.stop()
    assert window.see("connection", "reconnecting").get_attribute("data-state") == "retrying"
    live.start()
    window.see("connection", "live")
    live.request(PODS, pod("after-restart", pod_spec("1")))
    window.see("happenings", "default/after-restart")
    window.driver.refresh()
    window.see("map")
    live.request(f"{PODS}/after-restart", {"gracePeriodSeconds": 0}, "DELETE")


def test_an_empty_cluster_says_so_in_every_view(window: Window, empty: Program) -> None:
    window.open(empty)
    window.find("main .empty", "The cluster has no nodes.")
    window.go("/queues")
    window.find("main .empty", "No pod waits")
    window.go("/pods")
    window.find("main .empty", "No pod matches.")
    window.go("/time")
    assert window.find("main h1").text == "Time"
    window.expected = ["404"]
    window.go("/node/missing")
    assert "missing" in window.find("main [role=alert]").text
    window.go("/nowhere")
    assert window.driver.find_element(By.TAG_NAME, "h1").text == "Not found"
