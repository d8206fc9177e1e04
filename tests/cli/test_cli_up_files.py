"""``kubesched up`` and its files: what is in them is never lost, whatever the user, the disk or a signal does."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml
from cli_cluster import POD, cluster
from cli_kit import run, spawn

from kubesched.base.times import RealClock, parse_time, timestamp
from kubesched.cli.saved_file import claimed
from kubesched.cluster.files import newest_moment, read, save, snapshot_file
from kubesched.cluster.store import Store

HEADER = '{"format":"kubesched.io/cluster","version":1,"resourceVersion":%d,"objects":%d}'


def saved_header(path: Path) -> Any:
    return json.loads(path.read_text().splitlines()[0])


def test_a_cluster_that_ran_ahead_goes_on_where_it_was(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl"
    with cluster(tmp_path, "--nodes", "2", "--speed", "100", "--snapshot", str(saved)) as running:
        running.request("/api/v1/namespaces/default/pods", POD)
        node = running.wait_bound("one")
        while newest_of(running.request("/apis/coordination.k8s.io/v1/leases")) < time.time() + 60:
            time.sleep(0.1)
        assert running.stop() == (0, "")
    ended = parse_time(saved_header(saved)["time"])
    assert ended > time.time() + 30
    before = read(saved)
    assert newest_moment(before.items) - 1 <= ended, "nothing is later than the clock was"

    with cluster(tmp_path, "--snapshot", str(saved)) as again:
        new = again.request("/api/v1/namespaces/default/pods", {**POD, "metadata": {"name": "two"}})
        assert parse_time(new["metadata"]["creationTimestamp"]) >= int(ended)
        assert int(new["metadata"]["resourceVersion"]) > before.resource_version
        assert again.pod("one")["spec"]["nodeName"] == node
        again.wait_bound("two")
        assert again.stop() == (0, "")
    assert parse_time(saved_header(saved)["time"]) >= ended
    assert newest_moment(read(saved).items) - 1 <= parse_time(saved_header(saved)["time"])


def newest_of(leases: Any) -> float:
    return max((parse_time(item["spec"]["renewTime"]) for item in leases["items"]), default=0.0)


def test_a_cluster_that_slept_wakes_at_the_present(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl"
    long_ago = (HEADER % (7, 0)).replace("}", ',"time":"2024-01-02T03:04:05.000000Z"}')
    saved.write_text(long_ago + "\n")
    with cluster(tmp_path, "--speed", "2", "--snapshot", str(saved)) as again:
        made = again.request("/api/v1/namespaces", {"metadata": {"name": "n"}})["metadata"]
        assert time.time() - 60 < parse_time(made["creationTimestamp"]) < time.time() + 600
        assert int(made["resourceVersion"]) > 7
        assert again.stop() == (0, "")


def test_a_copy_of_a_cluster_that_is_ahead_takes_its_time_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = timestamp(time.time() + 86_400)
    dump = {**POD, "metadata": {**POD["metadata"], "creationTimestamp": later}}  # type: ignore[dict-item]
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    saved = tmp_path / "copy.jsonl"
    assert run(capsys, "import", tmp_path / "dump.json", "-o", saved).code == 0
    assert parse_time(saved_header(saved)["time"]) >= parse_time(later)


def test_events_of_a_restored_cluster_go_after_their_hour(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl"
    with cluster(tmp_path, "--nodes", "1", "--snapshot", str(saved)) as running:
        reference = {"kind": "Pod", "namespace": "default", "name": "x"}
        event = {"metadata": {"name": "e"}, "involvedObject": reference, "reason": "R", "message": "m"}
        running.request("/api/v1/namespaces/default/events", event)
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--snapshot", str(saved), "--speed", "3600") as again:
        for _ in range(600):
            # On a busy machine the node may be late with its heartbeats, and there are new events about that.
            events = again.request("/api/v1/namespaces/default/events")["items"]
            if all(item["metadata"]["name"] != "e" for item in events):
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the event is still there")
        assert again.stop() == (0, "")


# -- what cannot be used --------------------------------------------------------------------------------------


def object_line(**metadata: Any) -> str:
    full = {"name": "a", "uid": "u", "resourceVersion": "1", "namespace": "default", **metadata}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": full, "spec": {}}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("case", "lines", "want"),
    [
        ("empty", [], "is not a saved cluster: it is empty"),
        ("text", ["hello"], "the first line is no header"),
        ("cut", [HEADER % (1, 2), object_line()], "is cut short: 2 objects were saved, 1 are there"),
        ("too many", [HEADER % (1, 0), object_line()], "is damaged: 0 objects were saved, 1 are there"),
        ("no metadata", [HEADER % (1, 1), '{"apiVersion":"v1","kind":"Pod"}'], "needs metadata.name and metadata.uid"),
        ("no name", [HEADER % (1, 1), object_line(name="")], "line 2 is damaged: a Pod needs metadata.name"),
        ("no namespace", [HEADER % (1, 1), object_line(namespace="")], "Pod a: has no namespace"),
        (
            "bad version",
            [HEADER % (1, 1), object_line(resourceVersion="x")],
            "a number from 1 to the header's 1, got 'x'",
        ),
        ("late version", [HEADER % (1, 1), object_line(resourceVersion="9")], "header's 1, got '9'"),
        ("twice", [HEADER % (1, 2), object_line(), object_line()], "line 3 is damaged: Pod default/a occurs twice"),
        ("bad time", [HEADER % (1, 1), object_line(creationTimestamp="soon")], "line 2 is damaged: Invalid isoformat"),
        ("bad type", [HEADER % (1, 1), object_line().replace('"spec":{}', '"spec":7')], "`$.spec`"),
        ("bad clock", [(HEADER % (1, 0)).replace("}", ',"time":"noon"}')], "header: time: Invalid isoformat"),
        ("clock without zone", [(HEADER % (1, 0)).replace("}", ',"time":"2026-01-01T00:00:00"}')], "has no time zone"),
        ("far clock", [(HEADER % (1, 0)).replace("}", ',"time":"9999-12-31T00:00:00Z"}')], "years 1970 and 9000"),
    ],
)
def test_a_damaged_file_is_refused_by_line_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, lines: list[str], want: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    before = path.read_bytes()
    ran = run(capsys, "up", "--snapshot", path, "--kubeconfig-out", tmp_path / "kc")
    assert ran.code == 1, case
    assert f"{path}: " in ran.err
    assert want in ran.err
    assert "Traceback" not in ran.err
    assert path.read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["bad.jsonl"], "no kubeconfig, no lock"


def test_compressed_files_that_are_damaged_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress((HEADER % (1, 1) + "\n" + object_line() + "\n").encode())
    for name, raw in {
        "cut": whole[:-12],
        "flipped": whole[:30] + bytes([whole[30] ^ 255]) + whole[31:],
        "random": b"\x1f\x8b" + bytes(range(200)),
        "invalid text": gzip.compress(b'{"format":"\xff\xfe"}\n'),
    }.items():
        path = tmp_path / f"{name}.gz"
        path.write_bytes(raw)
        ran = run(capsys, "up", "--snapshot", path, "--kubeconfig-out", tmp_path / "kc")
        assert (ran.code, "Traceback" in ran.err) == (1, False), name
        assert f"{path}: " in ran.err, name
        assert path.read_bytes() == raw


def test_names_of_files_that_would_go_wrong_in_the_end_are_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("important")
    real = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "production", "cluster": {}}]}
    (tmp_path / "config").write_text(yaml.safe_dump(real))
    pod = tmp_path / "pod.yaml"
    pod.write_text(yaml.safe_dump(POD))
    for arguments, want in (
        (["up", "--snapshot", ""], "--snapshot: the name of the file is empty"),
        (["up", "--snapshot", "folder"], "--snapshot folder: exists and is not a regular file"),
        (["up", "--snapshot", "/dev/null"], "--snapshot /dev/null: exists and is not a regular file"),
        (["up", "--snapshot", "absent/c.jsonl"], "--snapshot absent/c.jsonl: cannot be saved there"),
        (["up", "--snapshot", "text/c.jsonl"], "text: Not a directory"),
        (["up", "--snapshot", "x", "--kubeconfig-out", "x"], "are both x; give two names"),
        (["up", "--kubeconfig-out", "folder"], "--kubeconfig-out folder: is a directory"),
        (["up", "--kubeconfig-out", "text/kc"], "--kubeconfig-out text/kc: cannot be written: Not a directory"),
        (["up", "--kubeconfig-out", "absent/kc"], "--kubeconfig-out absent/kc: there is no directory absent"),
        (["up", "--kubeconfig-out", "text"], "holds something that is no kubeconfig, which is not overwritten"),
        (["up", "--kubeconfig-out", "config"], "holds a kubeconfig of production, which is not overwritten"),
        (["up", "--tls-ca", "text"], "--tls-ca text: belongs to a certificate"),
        (["up", "--tls-cert", "absent", "--tls-key", "text"], "--tls-cert absent: cannot be read"),
        (
            ["up", "--tls-cert", "/dev/zero", "--tls-key", "text"],
            "--tls-cert /dev/zero: cannot be read: is no regular file",
        ),
        (["up", "--tls-cert", "text", "--tls-key", "text"], "--tls-key text: cannot be used"),
        (["import", "pod.yaml", "-o", "pod.yaml"], "--output pod.yaml: exists and is not a saved cluster"),
        (["import", "pod.yaml", "-o", "absent/x"], "--output absent/x: cannot be saved there"),
        (["import", "pod.yaml", "-o", "/dev/null"], "is not a regular file"),
        (["import", "pod.yaml", "-o", ""], "--output: the name of the file is empty"),
        (["import", "folder", "-o", "x.jsonl"], "folder: has no object that can be imported"),
        (["import", "pod.yaml", "--context", "c", "-o", "x.jsonl"], "--context NAME needs --kubeconfig FILE"),
    ):
        ran = run(capsys, *arguments)
        assert ran.code in (1, 2), arguments
        assert want in ran.err, arguments
        assert "Traceback" not in ran.err, arguments
    assert (tmp_path / "text").read_text() == "important"
    assert yaml.safe_load((tmp_path / "config").read_text()) == real
    assert yaml.safe_load(pod.read_text()) == POD
    assert sorted(item.name for item in tmp_path.iterdir()) == ["config", "folder", "pod.yaml", "text"]


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "1e300", "1e-300", "fast"])
def test_a_speed_that_is_none_is_wrong_usage(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "up", f"--speed={speed}")
    assert ran.code == 2
    assert "argument --speed" in ran.err
    assert speed in ran.err


def test_a_port_in_use_and_a_manifest_that_fails_leave_nothing_behind(tmp_path: Path) -> None:
    saved, kubeconfig = tmp_path / "c.jsonl", tmp_path / "kc"
    bad = tmp_path / "two.yaml"
    broken = {**POD, "metadata": {"name": "broken"}, "spec": {"containers": []}}
    bad.write_text(yaml.safe_dump_all([POD, broken]))
    files = ("--snapshot", saved, "--kubeconfig-out", kubeconfig)
    ran = spawn("up", *files, "-f", bad)
    assert ran.code == 1
    assert f"{bad}: document 2" in ran.err
    assert "spec.containers: Required value" in ran.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = spawn("up", *files, "--nodes", 3, "--port", port)
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; stop what listens there" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert sorted(item.name for item in tmp_path.iterdir()) == ["two.yaml"]


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "c.jsonl"
    with cluster(tmp_path, "--nodes", "2", "--snapshot", str(saved)) as running:
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--nodes", "5", "--snapshot", str(saved)) as running:
        assert len(running.request("/api/v1/nodes")["items"]) == 2
        code, errors = running.stop()
        assert code == 0
        assert "--nodes 5: ignored" in errors


# -- saving ---------------------------------------------------------------------------------------------------


def test_two_runs_do_not_share_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "c.jsonl"
    link = tmp_path / "link.jsonl"
    link.symlink_to(saved)
    with cluster(tmp_path, "--nodes", "1", "--snapshot", str(saved)) as running:
        (tmp_path / "other").mkdir()
        for path in (saved, link):
            ran = spawn("up", "--snapshot", path, "--kubeconfig-out", tmp_path / "other" / "kc")
            assert ran.code == 1
            assert f"is in use by another kubesched (process {running.process.pid})" in ran.err
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
        ran = run(capsys, "import", tmp_path / "pod.yaml", "-o", saved)
        assert (ran.code, "is in use by another kubesched" in ran.err) == (1, True)
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--snapshot", str(link)) as running:
        assert len(running.request("/api/v1/nodes")["items"]) == 1
        assert running.stop() == (0, "")
    assert link.is_symlink()


def test_a_lock_of_a_killed_process_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / ".c.jsonl.lock").write_text("1\n")
    with claimed(str(tmp_path / "c.jsonl"), "--snapshot"):
        assert (tmp_path / ".c.jsonl.lock").read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_cannot_be_saved_where_it_should_is_saved_elsewhere(tmp_path: Path) -> None:
    place, scratch = tmp_path / "place", tmp_path / "scratch"
    place.mkdir()
    scratch.mkdir()
    saved = place / "c.jsonl"
    os.environ["TMPDIR"], before = str(scratch), os.environ.get("TMPDIR")
    try:
        with cluster(tmp_path, "--nodes", "2", "--snapshot", str(saved)) as running:
            place.rename(tmp_path / "gone")
            code, errors = running.stop()
    finally:
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
    assert code == 1
    assert f"{saved}: cannot be saved: No such file or directory" in errors
    (rescued,) = scratch.glob("kubesched-saved-*/c.jsonl")
    assert f"are in {rescued}" in errors
    assert "Traceback" not in errors
    assert sum(item.kind.kind == "Node" for item in read(rescued).items) == 2


def test_a_save_that_fails_in_the_middle_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "c.jsonl"
    store = Store(RealClock(), random=Random(1))
    save(store, saved)
    saved.chmod(0o640)
    before = saved.read_bytes()

    def full(header: tuple[bytes], objects: Iterator[bytes]) -> Iterator[bytes]:
        yield header[0]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_file, "chain", full)
        with pytest.raises(OSError, match="No space left"):
            save(store, saved)
    assert saved.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["c.jsonl"]
    save(store, saved)
    assert saved.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_of_stopping_saves(number: signal.Signals, tmp_path: Path) -> None:
    saved = tmp_path / "c.jsonl"
    with cluster(tmp_path, "--nodes", "2", "--snapshot", str(saved)) as running:
        for _ in range(3):  # once is enough, more does no harm
            running.process.send_signal(number)
        assert running.stop() == (0, "")
    assert saved.stat().st_mode & 0o777 == 0o600, "it holds Secrets"
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert sum(item.kind.kind == "Node" for item in read(saved).items) == 2


def test_reconnecting_watchers_do_not_hold_up_the_save(tmp_path: Path) -> None:
    """The order is: no new connections, the file, the end. A container runtime kills what has not ended after ten seconds.

    ``make shutdown`` shows the times, and allows two seconds.
    """
    watchers = int(os.environ.get("KUBESCHED_WATCHERS", "1000"))
    seconds = float(os.environ.get("KUBESCHED_SHUTDOWN_SECONDS", "10"))
    saved = tmp_path / "c.jsonl"
    with cluster(tmp_path, "--nodes", "2", "--snapshot", str(saved)) as running:
        url = f"{running.url}/api/v1/pods?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"

        async def follow(session: aiohttp.ClientSession, opened: asyncio.Semaphore) -> None:
            while running.process.poll() is None:
                try:
                    async with session.get(url) as response:
                        opened.release()
                        await response.read()
                except aiohttp.ClientError:
                    await asyncio.sleep(watchers / 20_000)

        async def main() -> None:
            opened = asyncio.Semaphore(0)
            unlimited = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=unlimited) as session, asyncio.TaskGroup() as group:
                for _ in range(watchers):
                    group.create_task(follow(session, opened))
                for _ in range(watchers):
                    await opened.acquire()
                running.request("/api/v1/namespaces/default/pods", POD)
                assert not saved.exists()
                running.process.send_signal(signal.SIGTERM)
                begun = time.monotonic()
                async with asyncio.timeout(seconds):
                    while not saved.exists():  # noqa: ASYNC110 - another process writes it
                        await asyncio.sleep(0.005)
                    written = time.monotonic() - begun
                    address = urlsplit(running.url)
                    with pytest.raises(ConnectionRefusedError):
                        await asyncio.open_connection(address.hostname, address.port)
                    _, errors = await asyncio.to_thread(running.process.communicate, timeout=seconds)
                gone = time.monotonic() - begun
                sys.stdout.write(f"{watchers} watchers: saved after {written:.2f} s, gone after {gone:.2f} s\n")
                assert (running.process.returncode, errors) == (0, "")

        asyncio.run(main())
    assert "one" in {item.name for item in read(saved).items}


def test_signals_while_starting_and_while_saving_leave_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    saved = tmp_path / "c.jsonl"
    with cluster(tmp_path, "--nodes", "1500", "--snapshot", str(saved)) as running:
        assert running.stop() == (0, "")
    before, folder = saved.read_bytes(), sorted(item.name for item in tmp_path.iterdir())
    command = [sys.executable, "-m", "kubesched.cli", "up", "--snapshot", str(saved)]
    command += ["--kubeconfig-out", str(tmp_path / "kubeconfig")]
    # The lock is there as soon as the command knows what to do with signals.
    for number, wait in ((signal.SIGTERM, 0.0), (signal.SIGINT, 0.05), (signal.SIGTERM, 0.2)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (tmp_path / ".c.jsonl.lock").exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(wait)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors, errors[-3000:]
        # CPython ends itself by SIGINT where the interrupt met the exec of a text, as dataclasses do while modules are
        # imported; a shell says 130 for that, too.
        assert process.returncode in (0, 130, -signal.SIGINT), errors
        if process.returncode:
            assert "stopped while starting; nothing was saved" in errors
            assert saved.read_bytes() == before
        before = saved.read_bytes()
    with cluster(tmp_path, "--snapshot", str(saved)) as running:
        running.process.send_signal(signal.SIGTERM)
        while running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        _, errors = running.process.communicate(timeout=60)
        assert "Traceback" not in errors
    assert len(read(saved).items) > 1500
    assert sorted(item.name for item in tmp_path.iterdir()) == folder
