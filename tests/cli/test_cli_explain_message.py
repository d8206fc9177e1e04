"""``kubesched explain --message``: reasons, meanings and help for a text, without a cluster."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import msgspec
import pytest
import yaml
from cli_kit import run

from kubesched.explain.told import MessageExplanation

MESSAGE = (
    "0/216 nodes are available: 3 Insufficient cpu, 5 node(s) had untolerated taint(s), 208 node(s) sleep at night. "
    "no new claims to deallocate, preemption: 0/216 nodes are available: 216 Preemption is not helpful for scheduling."
)


def test_every_reason_is_explained_most_nodes_first(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "explain", "--message", MESSAGE)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "None of 216 nodes is available."
    order = [line.strip() for line in lines if line[:8].strip() and not line[:1].strip()]
    assert order == [
        "208  node(s) sleep at night",
        "5  node(s) had untolerated taint(s)  [TaintToleration]",
        "3  Insufficient cpu  [NodeResourcesFit, DynamicResources]",
        "216  Preemption is not helpful for scheduling  [DefaultPreemption]",
    ]
    assert "allocatable cpu" in ran.out
    assert "kubectl taint nodes NODE KEY:EFFECT-" in ran.out
    assert "it comes from another plugin, an extender or another release" in ran.out
    assert all(len(line) <= 116 for line in lines)


def test_documents_follow_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "explain", "--message", MESSAGE, "-o", "json").out)
    assert document == yaml.safe_load(run(capsys, "explain", "--message", MESSAGE, "-o", "yaml").out)
    typed = msgspec.convert(document, MessageExplanation)
    assert (typed.nodes, typed.is_cut) == (216, False)
    assert [(one.stage, one.nodes, one.is_known) for one in typed.reasons] == [
        ("nodes", 208, False),
        ("nodes", 5, True),
        ("nodes", 3, True),
        ("afterwards", None, True),
        ("preemption", 216, True),
    ]
    cpu = typed.reasons[2]
    assert cpu.preemption_may_help
    assert "AssignedPod/Delete" in cpu.wakes
    assert any("Request less cpu" in todo for todo in cpu.what_to_do)


def test_a_text_may_come_from_standard_input_and_cannot_change_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "0/1 nodes are available: 1 \x1b[31mred\n, 1 Insufficient \x07bell."
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode() + b"\xff")))
    ran = run(capsys, "explain", "--message", "-")
    assert ran.code == 0
    assert "\\x1b[31mred" in ran.out
    assert ran.out.replace("\n", "").isprintable()


def test_a_cut_message_says_where_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "explain", "--message", "0/9 nodes are available: 9 node(s) had untol ...")
    assert "The message is cut" in ran.out
    assert "node(s) had untol…  [TaintToleration]" in ran.out


def test_many_reasons_stay_on_a_screen_unless_all_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"0/99 nodes are available: {', '.join(f'{count} reason{count}' for count in range(1, 31))}."
    short = run(capsys, "explain", "--message", text).out
    assert "18 more reasons: --wide shows all" in short
    assert "reason1\n" not in short
    assert "reason1\n" in run(capsys, "explain", "--message", text, "--wide").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--message", " "], 1, "--message: the text is empty"),
        (["pod", "--message", "x"], 2, "leave out POD"),
        (["--message", "x", "-f", "a.yaml", "--from", "dump.yaml"], 2, "leave out -f, --from"),
    ],
)
def test_a_wrong_use_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str) -> None:
    ran = run(capsys, "explain", *arguments)
    assert ran.code == code
    assert says in ran.err
    assert "Traceback" not in ran.err
