"""Files of decisions: torn ends, growth, full disks, and hostile content."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from decisions_kit import record

import kubesched
from kubesched.explain.records import DecisionFile, DecisionsError, FileInUseError, Record, read_lines, read_records
from kubesched.explain.records.compressed import CompressedFile
from kubesched.explain.records.schema import Decided, PodRef

HEADER = b'{"type":"header","format":"kubesched.io/decisions","formatVersion":1}\n'


def a_line(number: int) -> bytes:
    pod = f'{{"namespace":"ns","name":"p{number}","uid":"u{number}"}}'
    return f'{{"type":"record","seq":{number},"at":{number}.0,"pod":{pod},"outcome":"bound"}}\n'.encode()


def seqs(path: Path) -> list[int]:
    return [one.seq for one in read_records(path) if one is not None]


def test_whatever_was_written_can_be_read_before_the_file_is_closed(tmp_path: Path) -> None:
    file = CompressedFile(tmp_path / "f")
    file.write(HEADER + a_line(1))
    assert seqs(tmp_path / "f") == [1]
    file.write(a_line(2))
    assert seqs(tmp_path / "f") == [1, 2]
    file.close()
    assert gzip.decompress((tmp_path / "f").read_bytes()) == HEADER + a_line(1) + a_line(2)
    assert (tmp_path / "f").stat().st_mode & 0o077 == 0


def test_a_file_has_the_records_of_the_ring(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    ring = record(path, 1, pods=60).ring.records()
    assert _by_seq(read_records(path)) == _by_seq(ring)
    assert {one.outcome for one in ring} >= {"bound", "unschedulable"}
    assert any(one.preemption for one in ring)


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    decided = b'{"type":"decided","seq":1,"at":1.0,"key":"ns/p1","uid":"u1","node":"n1"}\n'
    (tmp_path / "f").write_bytes(HEADER + decided + a_line(1))
    lines = [line for _, line in read_lines(tmp_path / "f")][1:]
    assert lines == [
        Decided(1, 1.0, "ns/p1", "u1", "n1"),
        Record(seq=1, at=1.0, pod=PodRef("ns", "p1", "u1"), outcome="bound"),
    ]


def test_attempts_without_an_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.explain.records.rows._MOST_HELD", 1000)
    tried = TRIED.replace(b'["n1",[1,2]]', b"")
    rows = [tried.replace(b"null,3,5", b"null,0,%d" % seq) for seq in range(1000)]
    with pytest.raises(DecisionsError, match="attempts without an end have more than"):
        list(read_lines(_written(tmp_path, HEADER + b"".join(rows))))
    pairs = [row + b'["bound",%d,1]\n' % seq for seq, row in enumerate(rows)]
    assert len(list(read_lines(_written(tmp_path, HEADER + b"".join(pairs))))) == 2001


def _by_seq(records: Iterable[Record | None]) -> list[Record]:
    return sorted((one for one in records if one is not None), key=lambda one: one.seq)


def test_the_end_of_a_binding_is_in_the_row_of_the_decision_while_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, soon = tmp_path / "late.gz", tmp_path / "soon.gz"
    record(late, 1)
    monkeypatch.setattr("kubesched.explain.records.file._MOST_WAITING", 1)
    record(soon, 1)
    whole, halves = (gzip.decompress(path.read_bytes()) for path in (late, soon))
    assert (b'["bound",' in whole, b'["bound",' in halves) == (False, True)
    assert _by_seq(read_records(late)) == _by_seq(read_records(soon))
    with_record = [line for _, line in read_lines(late) if isinstance(line, Decided | Record)]
    assert any(first.seq == second.seq for first, second in pairwise(with_record))


def test_files_of_version_2_are_read(tmp_path: Path) -> None:
    header = HEADER.replace(b'Version":1', b'Version":2')
    rows = b'["plugins",3,["A","B"]]\n' + TRIED + b'["bound",5,1]\n'
    (decided, found) = [line for _, line in read_lines(_written(tmp_path, header + rows))][1:]
    assert decided == Decided(5, 1.5, "ns/p", "u", "n1", None)
    assert isinstance(found, Record)
    assert (found.seq, found.outcome, found.top[0].scores) == (5, "bound", {"A": 1, "B": 2})


def _written(folder: Path, content: bytes) -> Path:
    (folder / "f").write_bytes(content)
    return folder / "f"


def test_a_torn_end_costs_the_last_line_only(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    record(path, 1, pods=20)
    whole = path.read_bytes()
    known = seqs(path)
    remarks: list[str] = []
    list(read_lines(path, on_torn=remarks.append))
    assert remarks == []
    for cut in range(1, 200, 7):
        path.write_bytes(whole[:-cut])
        found = seqs(path)
        assert found == known[: len(found)]
        assert len(found) >= len(known) - 30
        last = max(number for number, _ in read_lines(path, on_torn=remarks.append))
        assert remarks.pop().startswith(f"{path}: line {last + 1} is torn and left out: ")
        assert remarks == []
    plain = tmp_path / "plain"
    plain.write_bytes(HEADER + a_line(1) + a_line(2)[:-5])
    assert seqs(plain) == [1]
    table = kubesched.decisions(plain)
    torn = f"{plain}: line 3 is torn and left out: the scheduler that wrote it was killed, or is still writing"
    assert ([one.seq for one in table], table.warnings) == ([1], [torn])
    assert torn in kubesched.diff(plain, plain).warnings


def test_a_file_that_a_killed_scheduler_left_with_whole_lines_has_no_remark(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = CompressedFile(path)
    file.write(HEADER + a_line(1))
    file.write(a_line(2))  # and never closed
    assert kubesched.decisions(path).warnings == []
    assert kubesched.decisions(path, most=1)[0].seq == 2


def test_several_members_and_plain_text_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(HEADER) + gzip.compress(a_line(1) + a_line(2)))
    assert seqs(path) == [1, 2]
    path.write_bytes(HEADER + a_line(5))
    assert seqs(path) == [5]


def test_a_file_that_grows_is_followed_into_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = CompressedFile(path)
    file.write(HEADER + a_line(1))
    found: Iterator[Record | None] = read_records(path, follow=True)

    def fresh() -> list[int]:
        seen: list[int] = []
        for one in found:
            if one is None:
                return seen
            seen.append(one.seq)
        raise AssertionError("a follower never ends")

    assert fresh() == [1]
    assert fresh() == []
    file.write(a_line(2))
    assert fresh() == [2]
    file.write(a_line(3))
    file.close()
    path.replace(tmp_path / "f.1")
    file = CompressedFile(path)
    file.write(HEADER + a_line(4))
    assert fresh() == [3, 4]
    file.close()


def test_another_file_is_not_overwritten_and_an_earlier_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("my notes\n")
    with pytest.raises(FileInUseError, match="exists and is no file of decisions"):
        DecisionFile(path)
    assert path.read_text() == "my notes\n"
    path.write_bytes(HEADER + a_line(1))
    DecisionFile(path).close()
    assert seqs(tmp_path / "f.1") == [1]
    with pytest.raises(OSError, match="is no regular file"):
        CompressedFile(Path(os.devnull))


def test_a_full_disk_is_said_once_and_scheduling_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, room = os.write, [9_000]

    def write(descriptor: int, data: bytes) -> int:
        if threading.current_thread() is threading.main_thread() and len(data) > 100:
            if room[0] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: room[0]]
            room[0] -= len(data)
        return real(descriptor, data)

    monkeypatch.setattr("kubesched.explain.records.compressed.os.write", write)
    monkeypatch.setattr("kubesched.explain.records.file._MOST_WAITING", 50)
    path = tmp_path / "f"
    with caplog.at_level(logging.ERROR, "kubesched.decisions"):
        recorder = record(path, 2)
    texts = [one.getMessage() for one in caplog.records if one.name == "kubesched.decisions"]
    assert texts == [
        f"decisions cannot be written to {path}: No space left on device; scheduling goes on, and writing is tried again"
    ]
    assert len(recorder.ring) > len(seqs(path)) > 0
    assert sum(one.outcome == "bound" for one in recorder.ring.records()) >= 30


BOMB = b"0" * (9 << 20)
TRIED = b'["tried","s",1,"full scan",2,2,2,null,3,5,1.5,"ns","p","u","7",1,1,1,[["n1",[1,2]]],[]]\n'
HOSTILE = [
    ("empty", b"", "line 1: is no header"),
    ("text", b"hello\n", "line 1: is no header"),
    ("another format", b'{"type":"header","format":"x"}\n', "line 1: is no header"),
    ("a later version", HEADER.replace(b'Version":1', b'Version":4'), "line 1: format version 4; .* up to 3"),
    ("garbage after the header", HEADER + b"\xff\xfe\n", "line 2: is no line of a file of decisions"),
    ("an unknown line", HEADER + b'{"type":"gift"}\n', "line 2: is no line of a file of decisions: .*gift"),
    ("a wrong type", HEADER + b'{"type":"record","seq":"x"}\n', r"line 2: .*\$.seq"),
    ("an unknown row", HEADER + b'["gift",1]\n', "line 2: is no line of a file of decisions: .*gift"),
    ("an end without a beginning", HEADER + b'["bound",7,1]\n', "line 2: no earlier line has the attempt 7"),
    ("unknown plugins", HEADER + TRIED, "line 2: no earlier line has the plugins 3"),
    ("too many plugins", HEADER + b'["plugins",257,[]]\n', "line 2: number of plugins: 257 is not between 1 and 256"),
    ("scores of other plugins", HEADER + b'["plugins",3,["A"]]\n' + TRIED, "line 3: attempt 5: expected 1 scores"),
    ("deep nesting", HEADER + b'{"type":"put","kind":"x","object":' + b"[" * 100_000 + b"\n", "line 2: is no line"),
    ("a long line", HEADER + BOMB, "line 2: is longer than 8 MiB"),
    ("a bomb", gzip.compress(HEADER + BOMB * 20), "line 2: is longer than 8 MiB"),
    ("damaged packing", gzip.compress(HEADER) + b"\x1f\x8b" + b"\7" * 40, "line 2: cannot be unpacked"),
]


@pytest.mark.parametrize(("name", "content", "text"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_file_gives_an_error_that_names_file_and_line(
    name: str, content: bytes, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(DecisionsError, match=f"{path}: {text}" if text.startswith("line") else text):
        list(read_lines(path))
