"""A plugin whose call takes long is named, once, while the call lasts."""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from framework_kit import make_plugin

from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.slow_calls import loop_progress, watching_plugins


def _reports() -> tuple[threading.Event, list[str], Callable[[str], None]]:
    """An event for the first report, the texts reported, and what receives them."""
    reported = threading.Event()
    texts: list[str] = []

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    return reported, texts, report


def _waiting(event: threading.Event, calls: int = 1) -> Callable[..., None]:
    def filter(self: Any, state: Any, pod: Any, node: Any) -> None:  # noqa: A001 - the interface's name
        event.wait()

    return filter


def test_a_call_that_lasts_is_named_with_its_place_while_it_lasts() -> None:
    reported, texts, report = _reports()

    plugin = make_plugin("Slow", filter=_waiting(reported))(None, None)
    other = make_plugin("Other", filter=lambda self, *args: plugin.filter(*args))(None, None)
    with watching_plugins([plugin], report, seconds=0.01):
        plugin.filter(None, None, None)  # returns only because it was reported
        plugin.filter(None, None, None)
    [text] = texts
    assert text.startswith("plugin Slow has been in filter for more than 0.01 s, at ")
    assert f"{__file__}:" in text
    reported.clear()
    with watching_plugins([plugin, other], report, seconds=0.01):
        other.filter(None, None, None)
    assert texts[1].startswith("plugin Other has been in filter")


def test_a_decorated_method_is_recognised() -> None:
    reported, texts, report = _reports()

    inner = _waiting(reported)

    @functools.wraps(inner)
    def wrapper(*args: Any) -> None:
        inner(*args)

    plugin = make_plugin("Wrapped", filter=wrapper)(None, None)
    with watching_plugins([plugin], report, seconds=0.01):
        plugin.filter(None, None, None)
    assert texts[0].startswith("plugin Wrapped has been in filter")


def test_a_method_of_a_question_is_recognised() -> None:
    reported, texts, report = _reports()

    def verdicts(self: Any, rows: Any) -> None:
        reported.wait()

    question = type("Asked", (Question,), {"verdicts": verdicts})
    plugin = make_plugin("Asking", asks=question, ask=lambda self, pod, nodes: question())(None, None)
    with watching_plugins([plugin], report, seconds=0.01):
        plugin.ask(None, None).verdicts(None)
    assert texts[0].startswith("plugin Asking has been in verdicts for more than 0.01 s, at ")


def _short_calls(plugin: Any, until: Callable[[], bool]) -> None:
    """Calls without a pause between them; each ends long before the limit."""
    while not until():
        plugin.filter(None, None, None)


@pytest.mark.parametrize("progress", [None, lambda: 0], ids=["without progress", "the loop stands still"])
def test_many_short_calls_are_named_with_their_total(progress: Callable[[], object] | None) -> None:
    """As of a plugin that takes 5 ms for each of 5,000 nodes."""
    reported, texts, report = _reports()

    pause = threading.Event()
    plugin = make_plugin("Steady", filter=lambda self, *args: pause.wait(0.004))(None, None)
    with watching_plugins([plugin], report, seconds=0.04, progress=progress):
        _short_calls(plugin, reported.is_set)
        reported.clear()
    [text] = texts
    assert text.startswith("plugin Steady has taken about 0.")
    assert text.endswith(" s in filter, in many calls; nothing else was done meanwhile")


def test_the_total_is_named_when_the_loop_goes_on() -> None:
    """The plugin is called until so many samples were taken; the total is theirs."""
    reported, texts = threading.Event(), list[str]()
    samples = itertools.count()
    seen: list[int] = [0]

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    def progress() -> int:
        seen[0] = next(samples)
        return int(seen[0] > 12)

    pause = threading.Event()
    plugin = make_plugin("Steady", filter=lambda self, *args: pause.wait(0.004))(None, None)
    with watching_plugins([plugin], report, seconds=0.04, progress=progress):
        _short_calls(plugin, reported.is_set)
    assert texts[0].startswith("plugin Steady has taken about 0.")


def test_short_calls_between_which_the_loop_goes_on_are_not_slow() -> None:
    texts: list[str] = []
    counter, pause = itertools.count(), threading.Event()
    plugin = make_plugin("Fair", filter=lambda self, *args: pause.wait(0.001))(None, None)
    with watching_plugins([plugin], texts.append, seconds=0.01, progress=lambda: next(counter)):
        for _ in range(50):
            plugin.filter(None, None, None)
    assert texts == []


def test_many_short_calls_are_not_slow() -> None:
    ticks = threading.Event()
    texts: list[str] = []
    plugin = make_plugin("Quick", filter=lambda self, *args: None)(None, None)
    with watching_plugins([plugin], texts.append, seconds=0.01):
        for _ in range(20):
            plugin.filter(None, None, None)
            ticks.wait(0.002)
    assert texts == []
    assert not [thread for thread in threading.enumerate() if thread.name == "plugin-watch"]


def test_the_stack_is_not_sampled_while_there_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, asked = itertools.count(), threading.Event()
    sampled: list[int] = []
    texts: list[str] = []

    def progress() -> int:
        number = next(counter)
        if number == 12:
            asked.set()
        return number

    def frames() -> dict[int, Any]:
        sampled.append(1)
        return {}

    monkeypatch.setattr(sys, "_current_frames", frames)
    plugin = make_plugin("Long", filter=_waiting(asked))(None, None)
    with watching_plugins([plugin], texts.append, seconds=0.01, progress=progress):
        plugin.filter(None, None, None)
    assert (sampled, texts) == ([], [])


def test_a_call_is_named_when_there_is_no_progress_any_more() -> None:
    reported, counter = threading.Event(), itertools.count()
    plugin = make_plugin("Stuck", filter=_waiting(reported))(None, None)
    texts: list[str] = []

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    with watching_plugins([plugin], report, seconds=0.01, progress=lambda: min(next(counter), 5)):
        plugin.filter(None, None, None)
    assert texts[0].startswith("plugin Stuck has been in filter")


def test_a_loop_makes_progress_while_it_runs_its_callbacks() -> None:
    async def main() -> None:
        progress = loop_progress(asyncio.get_running_loop())
        before = progress()
        assert progress() == before  # nothing has run meanwhile
        await asyncio.sleep(0)
        assert progress() != before

    asyncio.run(main())
    loop = asyncio.new_event_loop()
    loop.close()
    progress = loop_progress(loop)
    assert progress() == progress()
