"""``kubesched run --ui``: the scheduler of a real cluster with a dashboard."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from kubesched.base.hosts import loopback_listener

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
