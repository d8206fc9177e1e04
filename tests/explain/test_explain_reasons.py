"""Table of reasons: complete, unambiguous, and true to recorded decisions of Kubernetes 1.36 and to the plugins."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kubesched.retired
import kubesched.scheduler
from kubesched.explain.reasons import advice, could_begin, filled, find, find_all, sections
from kubesched.scheduler.config import IN_TREE
from kubesched.scheduler.framework.enqueue import registrations, watched_actions
from kubesched.scheduler.framework.events import ACTION_NAMES, ActionType
from kubesched.scheduler.framework.points import POINTS
from kubesched.scheduler.plugins import in_tree_registry
from recorded_kit import recorded
from search_kit import House

ROWS = [row for section in sections() for row in section.row]
CODES = {"Unschedulable", "UnschedulableAndUnresolvable", "Pending", "Wait", "Error"}
ERRORS = {"AllocationTimeoutError", "BindError", "ClaimError", "PlacementError"}
#: Texts of statuses that are no reasons of their own: a caller puts words before them, or replaces them.
INTERNAL = {
    "no Bind plugin took the pod",
    "returned word scores for word placements",  # shown within the text about PlacementScore plugins
    "ResourceClaim word was not created for Pod word (word)",  # has a row for each text in the brackets
}


def leaves(text: str) -> Iterator[str]:
    """The reason itself, and the reasons that stand within it."""
    yield text
    found = find(text)
    if found and found.row.wraps:
        yield from leaves(list(found.parts.values())[-1])


def sample(text: str) -> str:
    """A reason that matches a row: each part is its own name."""
    return filled(text, {name: name for name in ("taint", "taints")}) if "{{" in text else _named(text)


def _named(text: str) -> str:
    for piece in ("...}", "}"):
        text = text.replace(piece, "")
    return text.replace("{", "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_a_reason_matches_its_row_and_no_other(row: Any) -> None:
    assert [found.row for found in find_all(sample(row.text))] == [row]


def test_a_row_is_whole() -> None:
    for row in ROWS:
        assert row.meaning.endswith("."), row.text
        assert 1 <= len(row.todo) <= 3, row.text
        assert all(todo.rstrip("`'").endswith(".") for todo in row.todo), row.text
        assert set(row.codes) <= CODES, row.text
        assert set(row.plugins) <= {*IN_TREE, "NodeLabel", "PodGroupMigration", "ServiceAffinity"}, row.text
        assert not row.preempt or "Unschedulable" in row.codes, row.text
        assert "{" not in filled(row.meaning, dict.fromkeys(find_all(sample(row.text))[0].parts, "x")), row.text


def test_every_recorded_reason_has_one_row_of_its_plugin_and_code() -> None:
    seen = {
        (place, status.plugin, status.code, reason)
        for pod in recorded()
        for place, status in pod.statuses()
        for reason in status.reasons
    }
    assert len({reason for *_, reason in seen}) > 300
    checked = 0
    for place, plugin, code, reason in seen:
        if reason.startswith("preemption: "):
            continue  # a message of its own: test_explain_messages.py
        for leaf in leaves(reason):
            rows = find_all(leaf)
            assert len(rows) == 1, f"{place}: {plugin}: {leaf!r} matches {[found.row.text for found in rows]}"
            row = rows[0].row
            if leaf == reason and not row.wraps and place != "rejected":
                assert advice(plugin, leaf) is row, f"{plugin}: {leaf!r}: the row has {row.plugins}"
                assert code in row.codes, f"{plugin}: {leaf!r} has the code {code}: the row has {row.codes}"
                checked += 1
    assert checked > 100


def _texts_of_code() -> Iterator[tuple[str, str]]:
    """Texts of statuses in the source, with a word for each value that is filled in."""
    for package in (kubesched.scheduler, kubesched.retired):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(source if "Status." in source else "")):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                    *(f"Status.{name}" for name in ("unschedulable", "unresolvable", "wait", "pending", "from_error"))
                }:
                    for argument in node.args[:1]:
                        if isinstance(argument, ast.Constant | ast.JoinedStr):
                            yield path.name, _written(argument)


def _texts_of_errors() -> Iterator[tuple[str, str]]:
    """Texts of the errors that plugins of volumes and devices end an attempt with."""
    for path in sorted(Path(kubesched.scheduler.__path__[0]).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source if "Error(" in source else "")):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                argument = node.exc.args[0]
                if ast.unparse(node.exc.func) in ERRORS and isinstance(argument, ast.Constant | ast.JoinedStr):
                    yield path.name, _written(argument)


def _written(node: ast.Constant | ast.JoinedStr) -> str:
    values = [node] if isinstance(node, ast.Constant) else node.values
    return "".join(str(value.value) if isinstance(value, ast.Constant) else "word" for value in values)


def test_every_text_of_a_status_or_error_in_the_source_has_one_row() -> None:
    texts = [(path, text) for path, text in (*_texts_of_code(), *_texts_of_errors()) if text not in INTERNAL]
    assert len(texts) > 35
    for path, text in texts:
        rows = find_all(text.removeprefix("preemption: "))
        assert len(rows) == 1, f"{path}: {text!r} matches {[found.row.text for found in rows]}"


def test_every_constant_of_a_reason_has_one_row_of_its_plugin() -> None:
    checked = 0
    for package in (kubesched.scheduler, kubesched.retired):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".plugins." not in module.name:
                continue
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, type) and value.__module__ == module.name:
                    for text in (text for key, text in vars(value).items() if key.startswith("REASON")):
                        checked += 1
                        assert len(find_all(text)) == 1, f"{name}: {text!r}"
                        assert advice(getattr(value, "name", ""), text) is not None, f"{name}: {text!r}"
                elif name.strip("_") in ("REASON", "REASONS", "TEXTS", "NEVER"):
                    for text in value.values() if isinstance(value, dict) else [value]:
                        checked += 1
                        assert len(find_all(text)) == 1, f"{module.name}: {text!r}"
    assert checked > 25


def test_advice_is_for_the_plugin_that_gave_the_reason() -> None:
    assert advice("NodeResourcesFit", "Insufficient cpu") is not None
    assert advice("", "Insufficient cpu") is advice("NodeResourcesFit", "Insufficient cpu")
    assert advice("NodeName", "Insufficient cpu") is None
    assert advice("MyPlugin", "node(s) sleep at night") is None


def test_a_word_has_no_blanks_and_no_part_is_empty() -> None:
    assert find("Insufficient ") is None
    assert find("Insufficient cpu and memory") is None
    assert find("Insufficient example.com/a-b_c.d") is not None
    assert find("waiting for scheduling gates: []") is None
    found = find("waiting for scheduling gates: [a b]")
    assert found is not None
    assert found.parts == {"gates": "a b"}


def test_a_beginning_tells_which_rows_are_possible() -> None:
    assert [row.text for row in could_begin("Insufficient cp")] == ["Insufficient {resource}"]
    assert [row.text for row in could_begin("Insufficient cpu x")] == []
    assert {"node(s) had no available disk", "node(s) had no available volume zone"} == {
        row.text for row in could_begin("node(s) had no av")
    }
    for row in ROWS:
        text = sample(row.text)
        for size in [*range(1, len(text), 7), len(text)]:
            assert row in could_begin(text[:size]), text[:size]


def test_the_points_of_rows_are_those_of_the_framework() -> None:
    known = {point.label for point in POINTS} | {
        "PodGroupPostFilter",
        "PlacementGenerate",
        "PlacementScore",
        "API server",
    }
    for row in ROWS:
        for point in row.points:
            assert point in known or not point[0].isupper(), (row.text, point)


def _registered(plugin: Any) -> dict[str, ActionType]:
    return watched_actions(item.event for item in registrations(plugin))


def test_the_events_that_wake_a_pod_are_registered_by_a_plugin_of_the_row() -> None:
    house = House(plugins=tuple(in_tree_registry()))
    by_plugin = {name: _registered(plugin) for name, plugin in house.framework.plugins.items()}
    actions = {name: action for action, name in ACTION_NAMES.items()}
    checked = 0
    for row in ROWS:
        plugins = [by_plugin[name] for name in row.plugins if name in by_plugin]
        for event in row.wakes if plugins else ():
            resource, _, name = event.rpartition("/")
            # Who registers for pods hears of pods with a node, too.
            able = {resource, "Pod"} if resource == "AssignedPod" else {resource}
            assert any(actions[name] & registered.get(each, 0) for registered in plugins for each in able), (
                f"{row.text!r}: {event} is registered by none of {row.plugins}"
            )
            checked += 1
    assert checked > 60
