"""Followers of a bounded log: each reads every entry once, or is told to rebuild."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.change_log import ChangeLog, Follower


def a_log(keep: int, *entries: int) -> ChangeLog[int]:
    log: ChangeLog[int] = ChangeLog(keep)
    for entry in entries:
        log.append(entry)
    return log


def test_a_new_follower_rebuilds_and_then_reads_what_is_new() -> None:
    log = a_log(10, 1, 2)
    follower = Follower(log)
    assert follower.is_behind
    assert follower.read() is None
    assert not follower.is_behind
    assert follower.read() == []
    log.append(3)
    log.append(3)
    assert follower.is_behind
    assert follower.read() == [3, 3]
    assert follower.read() == []


def test_a_follower_from_now_on_knows_what_was_there() -> None:
    log = a_log(10, 1, 2)
    follower = Follower.from_now(log)
    assert not follower.is_behind
    log.append(3)
    assert follower.read() == [3]


def test_what_is_skipped_is_not_read_and_who_restarts_rebuilds() -> None:
    log = a_log(10)
    follower = Follower.from_now(log)
    log.append(1)
    follower.skip()
    assert follower.read() == []
    follower.restart()
    assert follower.is_behind
    assert follower.read() is None
    assert follower.read() == []


def test_after_a_log_forgot_all_rebuild_also_who_had_read_everything() -> None:
    log = a_log(10, 1)
    current, behind = Follower.from_now(log), Follower.from_now(log)
    log.append(2)
    current.skip()
    log.forget()
    log.append(3)
    assert current.is_behind
    assert current.read() is behind.read() is None
    log.append(4)
    assert current.read() == behind.read() == [4]


@pytest.mark.parametrize("keep", [1, 3])
@given(data=st.data())
def test_a_follower_reads_each_entry_once_unless_it_is_too_far_behind(keep: int, data: st.DataObject) -> None:
    log, written = a_log(keep), 0
    followers = {Follower.from_now(log): 0 for _ in range(3)}
    for _ in range(data.draw(st.integers(0, 12))):
        for _ in range(data.draw(st.integers(0, 3 * keep))):
            log.append(written)
            written += 1
        assert log.position == written
        follower = data.draw(st.sampled_from(list(followers)))
        known = followers[follower]
        assert follower.is_behind == (known < written)
        got = follower.read()
        if got is None:
            assert written - known > keep, "the last entries are kept"
        else:
            assert got == list(range(known, written))
            assert len(got) <= 2 * keep, "no more than that is kept"
        followers[follower] = written
