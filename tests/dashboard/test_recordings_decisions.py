"""Files of decisions on the dashboard: the same run as its result, with explanations at every moment."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kubesched.dashboard.recordings import of_decisions, replayed
from kubesched.dashboard.recordings.of_decisions import recording_of_decisions
from kubesched.dashboard.recordings.of_result import recording_of_result
from kubesched.dashboard.recordings.replayed import ReplayedReasons
from kubesched.dashboard.recordings.source import RecordingSource
from kubesched.dashboard.recordings.timeline import RecordingError
from kubesched.dashboard.source import Refused
from kubesched.explain.records import Record, Recorder, read_records
from kubesched.explain.records.file import DecisionFile
from kubesched.explain.records.reading import DecisionsError
from kubesched.lab.simulate.entry import options_of
from kubesched.lab.simulate.results.result import Result
from kubesched.lab.simulate.run.simulation import run_simulation
from kubesched.scheduler.config import DEFAULT_GATES, default_config
from kubesched.scheduler.plugins import in_tree_registry
from recording_kit import EVENTS, applied, columns, objects


class Run(NamedTuple):
    """Simulation: its file of decisions, its result, and the sources over both. ``start`` is the time of the first moment."""

    path: Path
    result: Result
    decisions: RecordingSource
    simulated: RecordingSource
    start: float


def reasons_of(path: Path) -> ReplayedReasons:
    return ReplayedReasons(path, default_config(), in_tree_registry(), DEFAULT_GATES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    path = tmp_path_factory.mktemp("run") / "decisions.jsonl.gz"
    result = run_simulation(**options_of(objects(), events=EVENTS), recorder=Recorder(kept=0, file=DecisionFile(path)))
    reasons = reasons_of(path)
    recording = recording_of_decisions(path, reasons, reasons.profiles())
    simulated = RecordingSource(recording_of_result(result, "run"), 1)
    yield Run(path, result, RecordingSource(recording, 0), simulated, recording.line.start)
    reasons.close()


def records(run: Run) -> list[Record]:
    return [one for one in read_records(run.path) if one is not None]


def test_nodes_and_requests_are_those_of_the_run_at_each_decision(run: Run) -> None:
    """Between two decisions the file does not say when objects changed; at a decision both agree."""
    for at in sorted({one.at for one in records(run)})[::5]:
        found = columns(asyncio.run(run.decisions.state(at)).nodes)
        expected = columns(asyncio.run(run.simulated.state(at - run.start)).nodes)
        assert found == expected, at - run.start


def test_pods_have_the_times_of_the_run(run: Run) -> None:
    found = {(one.name, one.node): one for one in run.decisions._line.pods}
    for one in run.result.pods:
        again = found[(one.name, one.node)]
        assert again.created - run.start == one.created
        assert (again.attempts, again.preempted, again.priority, again.requests) == (
            one.attempts,
            one.preempted,
            one.priority,
            one.requests,
        )
        if one.bound is not None:
            assert again.bound is not None
            assert again.bound - run.start == one.bound


@pytest.mark.parametrize("most", [2, 40, 2000])
def test_a_state_and_what_is_played_lead_to_the_later_state(run: Run, most: int) -> None:
    info = run.decisions.info
    assert info.end is not None
    for start, stop in ((info.start, info.end), (info.start + 33.3, info.start + 80.0)):
        before, played = asyncio.run(run.decisions.state(start)), asyncio.run(run.decisions.played(start, stop, most))
        assert applied(before, played) == columns(asyncio.run(run.decisions.state(stop)).nodes)
        assert sum(one.sample.failed for one in played.changes if one.sample) == sum(
            start < one.at <= stop and one.outcome != "bound" for one in records(run)
        )


def test_the_queue_has_the_message_of_the_last_attempt(run: Run) -> None:
    for at in (40.0, 90.0, 200.0):
        last = {one.pod.key: one for one in records(run) if one.at - run.start <= at}
        for place in asyncio.run(run.decisions.queues(run.start + at)).places:
            for group in place.groups:
                if group.attempts:
                    assert group.why == last[group.pod].message
                    assert group.attempts == last[group.pod].attempt
                assert (place.place == "Unschedulable") == bool(group.attempts)


def test_a_pod_has_its_attempts(run: Run) -> None:
    page = asyncio.run(run.decisions.pod("default", "giant", None))
    mine = [one for one in records(run) if one.pod.name == "giant"]
    assert [one.text for one in page.life if one.what == "rejected"] == [one.message for one in mine]
    assert page.message == mine[-1].message


def test_verdicts_are_those_of_the_attempt(run: Run) -> None:
    """Forwards and backwards in time, more moments than schedulers are kept."""
    moments = Counter(one.at for one in records(run))
    mine = [one for one in records(run) if one.verdicts and moments[one.at] == 1]
    assert len(mine) >= 5
    for one in (mine[3], mine[-1], mine[0], mine[2], mine[1], mine[-2]):
        found = asyncio.run(run.decisions.verdicts("default", one.pod.name, one.at))
        counts: dict[str, int] = {}
        for verdict in one.verdicts:
            counts[verdict.reasons[0]] = counts.get(verdict.reasons[0], 0) + verdict.nodes
        texts = {reason.text: reason.nodes for reason in found.reasons}
        assert texts == {text: texts.get(text, 0) for text in counts}
        assert sum(texts.values()) == one.nodes == sum(verdict >= 0 for verdict in found.verdict)
        names = asyncio.run(run.decisions.state(one.at)).nodes.names
        assert [name == "" for name in names] == [verdict == -2 for verdict in found.verdict]


def test_explanations_are_made_at_the_moment(run: Run) -> None:
    def explained(at: float) -> dict[str, Any]:
        answer = asyncio.run(run.decisions.explain("/explain/pods/default/giant", {}, run.start + at))
        assert answer.status == 200
        document: dict[str, Any] = msgspec.json.decode(answer.body)
        return document

    late, early = explained(300.0), explained(31.0)
    assert [one["nodes"] for one in early["pending"][0]["reasons"]] != [
        one["nodes"] for one in late["pending"][0]["reasons"]
    ]
    assert "queue" not in str(early["pending"][0].get("queue") or "")
    assert asyncio.run(run.decisions.explain("/explain/pods/default/nobody", {}, None)).status == 404
    with pytest.raises(Refused, match="no pod default/giant at this moment"):
        asyncio.run(run.decisions.verdicts("default", "giant", run.start + 3))


def test_a_slow_replay_says_so_and_goes_on_where_it_was(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = reasons_of(run.path)
    now = iter(range(0, 10**9, 16))  # each look at the clock takes 16 s
    monkeypatch.setattr(replayed, "monotonic", lambda: next(now))
    refusals: list[Refused] = []
    found = None
    while found is None:
        try:
            found = asyncio.run(reasons.verdicts("default", "giant", run.start + 40.0, run.decisions._line))
        except Refused as error:
            refusals.append(error)
    assert len(refusals) > 1
    assert all(one.status == 503 and "it goes on from here" in str(one) for one in refusals)
    reasons.close()
    monkeypatch.undo()
    assert found.reasons == asyncio.run(run.decisions.verdicts("default", "giant", run.start + 40.0)).reasons


def test_a_replay_ends_when_the_program_stops(run: Run) -> None:
    reasons = reasons_of(run.path)
    reasons._stop.set()
    with pytest.raises(Refused, match="is being stopped"):
        asyncio.run(reasons.verdicts("default", "giant", run.start + 40.0, run.decisions._line))
    reasons.close()


def lines_of(run: Run) -> list[bytes]:
    return gzip.decompress(run.path.read_bytes()).splitlines(keepends=True)


def recording_at(path: Path, content: bytes) -> RecordingSource:
    path.write_bytes(content)
    return RecordingSource(recording_of_decisions(path, reasons_of(path)), 0)


def test_a_torn_file_is_shown_up_to_its_last_whole_line(run: Run, tmp_path: Path) -> None:
    source = recording_at(tmp_path / "torn.jsonl", b"".join(lines_of(run)[:150])[:-10])
    assert source.info.end is not None
    assert asyncio.run(source.state(None)).nodes.names


def test_a_file_that_begins_late_says_what_it_lacks(run: Run, tmp_path: Path) -> None:
    lines = lines_of(run)
    header, rest = lines[0], [one for one in lines[1:] if b'"kind":"pods"' not in one]
    source = recording_at(tmp_path / "nopods.jsonl", b"".join([header, *rest]))
    assert "attempts are left out, because the file does not have their pods" in source.info.remarks[-1]
    objects_only = [one for one in rest if one.startswith(b'{"type":"put"')]
    source = recording_at(tmp_path / "late.jsonl", b"".join([header, *objects_only]))
    assert "The file has no attempts." in source.info.remarks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no header"),
        (b'{"kind":"SimulationResult"}\n', "is no header"),
        (b'{"type":"header","format":"kubesched.io/decisions","formatVersion":99}\n', "format version 99"),
        (b'{"type":"header","format":"kubesched.io/decisions","formatVersion":2}\n{"type":"put","kind":"pods","object":[]}\n', "line 2"),
        (b'{"type":"header","format":"kubesched.io/decisions","formatVersion":2}\n{"type":"change","kind":"pods","key":"a/b","version":"1"}\n', "there is no pods a/b"),
        (b'{"type":"header","format":"kubesched.io/decisions","formatVersion":2}\nnonsense\n', "line 2"),
        (gzip.compress(b'{"type":"header"}\n' * 999, mtime=0)[:30] + b"\0" * 20, "cannot be unpacked|is no header"),
    ],
)  # fmt: skip
def test_files_that_are_damaged_are_refused_in_words(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DecisionsError, match=message):
        recording_at(tmp_path / "bad.jsonl", content)


def test_impossible_times_and_too_many_pods_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (
        b'{"type":"header","format":"kubesched.io/decisions","formatVersion":2,"at":1e300,"kinds":["nodes","pods"]}\n'
    )
    with pytest.raises(RecordingError, match="is no time"):
        recording_at(tmp_path / "bad.jsonl", head)
    monkeypatch.setattr(of_decisions, "MOST_PODS", 3)
    with pytest.raises(RecordingError, match="has more than 3 pods"):
        recording_at(tmp_path / "many.jsonl", b"".join(lines_of(run)))


def test_very_many_lines_without_a_decision_do_not_wait_for_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_decisions, "_MOST_LINES", 2)
    source = recording_at(tmp_path / "run.jsonl", b"".join(lines_of(run)))
    assert columns(asyncio.run(source.state(None)).nodes) == columns(asyncio.run(run.decisions.state(None)).nodes)
