"""``kubesched run --ui``: the scheduler of a real cluster with a dashboard."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from threading import current_thread

import pytest

from kubesched.base.hosts import loopback_listener
from kubesched.base.times import RealClock
from kubesched.explain import watchers as watchers_module
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


def command(folder: Path, *flags: str) -> subprocess.Popen[str]:
    (folder / "kubeconfig").write_text(KUBECONFIG)
    words = ["--kubeconfig", str(folder / "kubeconfig"), "--secure-port", "0", "--leader-elect=false", *flags]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "kubesched", "run", *words], stderr=subprocess.PIPE, text=True, env=environment
    )


def test_the_log_has_the_link_and_the_cluster_is_waited_for(tmp_path: Path) -> None:
    with command(tmp_path, "--ui=0") as process:
        assert process.stderr is not None
        links = (re.search(r'link="(http://127\.0\.0\.1:\d+/ui/)\?key=([\w-]{43})"', line) for line in process.stderr)
        found = next(filter(None, links))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(found[0][6:-1], timeout=30) as page:
            assert page.url == found[1]
        with browser.open(f"{found[1]}api/v1/dashboard", timeout=30) as answer:
            (shown,) = json.load(answer)["runs"]
            assert (shown["mode"], shown["remarks"]) == ("live", ["the cluster is being read"])
        for path in ("runs/0/state", "runs/0/explain/pending"):
            with pytest.raises(urllib.error.HTTPError, match="503") as waits:
                browser.open(f"{found[1]}api/v1/{path}", timeout=30)
            waits.value.close()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(30) == 1, rest
        assert found[2] not in rest
        assert "Traceback" not in rest


_LOADED = """
import sys
from kubesched.cli.run import command
def run_loop(coroutine):
    coroutine.close()
    print(sum(name.startswith("kubesched.dashboard") for name in sys.modules), "kubesched.explain.live" in sys.modules)
    return 0
command.run_loop = run_loop
command.main(sys.argv[1:])
"""


@pytest.mark.parametrize("flags", [[], ["--ui=0"]])
def test_the_page_is_imported_before_the_event_loop_runs(flags: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED, *flags], capture_output=True, text=True, check=True)
    count, answers = done.stdout.split()
    assert (int(count) > 10, answers) == ((True, "True") if flags else (False, "False"))


def test_explanations_are_imported_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question of a scheduler without a dashboard does not hold its event loop."""
    threads: list[str] = []
    monkeypatch.setattr(watchers_module, "import_module", lambda name: threads.append(current_thread().name))
    watchers = watchers_module.Watchers(None, annotate_why=False, event_why=False, simulator_results=False)

    async def asked() -> None:
        embedded = Embedded(default_config(), in_tree_registry(), clock=RealClock(), observers=watchers.observers)
        watchers.attach(embedded.scheduler, embedded.port, ready=lambda: False)
        for _ in range(2):
            answer = await watchers.pages["explain"]("/explain/pending", {}, "")
            assert (answer.status, answer.body) == (503, b"the scheduler has not read the cluster yet\n")

    asyncio.run(asked())
    assert len(threads) == 1
    assert threads[0] != current_thread().name


def test_an_address_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    with command(tmp_path, "--ui=0.0.0.0:10260") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "--ui: '0.0.0.0' is no loopback address" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("127.0.0.1", 10260)),
        ("0", ("127.0.0.1", 0)),
        ("65535", ("127.0.0.1", 65535)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("::1", 80)),
        ("127.9.9.9:1", ("127.9.9.9", 1)),
    ],
)
def test_addresses_of_this_machine_are_read(text: str, address: tuple[str, int]) -> None:
    assert loopback_listener(text, "127.0.0.1", 10260) == address


@pytest.mark.parametrize(
    "text", ["x", "65536", "-1", "1.5", "000080", "\u0661", ":", "localhost:", "10.0.0.1:80", "a.example:1", " 80"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no PORT and no ADDRESS:PORT|no loopback address"):
        loopback_listener(text, "127.0.0.1", 10260)
