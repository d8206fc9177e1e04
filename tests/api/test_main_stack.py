"""The main thread looks at its own stack when another thread asks."""

from __future__ import annotations

import sys
import threading
import time

from kubesched.base.main_stack import MainStack


def test_the_main_thread_answers_with_what_it_executes() -> None:
    seen: list[tuple[int, str]] = []
    stack = MainStack(lambda frame: seen.append((threading.get_ident(), frame.f_code.co_name)))
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.001):
            stack.request()
            stack.request()  # while the first waits: one sample is enough

    def work() -> None:
        ends = time.monotonic() + 60
        while "work" not in {name for _, name in seen}:
            assert time.monotonic() < ends

    asking = threading.Thread(target=ask)
    asking.start()
    work()
    done.set()
    asking.join()
    assert {ident for ident, _ in seen} == {threading.main_thread().ident}


def test_a_sample_that_comes_after_the_end_is_dropped() -> None:
    seen: list[str] = []
    stack = MainStack(lambda frame: seen.append(frame.f_code.co_name))
    stack._take(sys._getframe())
    stack.stop()
    stack._take(sys._getframe())
    assert seen == ["test_a_sample_that_comes_after_the_end_is_dropped"]
