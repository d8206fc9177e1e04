"""Pods decoded with shared specs are the pods that are decoded on their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubesched.api.decode import DecodeError, decode_object
from kubesched.api.shared_parts import decode_pod
from kubesched.api.types import Pod

SPEC: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
    "tolerations": [{"key": "k", "operator": "Exists", "unknown": [1, {"a": None}]}],
    "schedulerName": "default-scheduler",
}


def raw(spec: Any, name: str = "p", **more: Any) -> bytes:
    text = json.dumps(
        {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec, **more}, separators=(",", ":")
    )
    return text.encode()


@pytest.mark.parametrize(
    "pod",
    [
        raw(SPEC),
        raw({"nodeName": "node-1", **SPEC}),
        raw({**SPEC, "nodeName": "node-1"}),
        raw({"nodeName": 'odd "name\\', **SPEC}),
        raw({"nodeName": "alone"}),
        raw({"nodeName": ""}),
        raw({}),
        raw({"nodeName": "x", "containers": []}, status={"phase": "Running", "conditions": [{"type": "Ready"}]}),
        raw({**SPEC, "priority": None, "nodeName": None}),
        raw(None),
        b'{"metadata":{"name":"p"}}',
        b'{ "spec" : { "nodeName" : "n" , "containers" : [] } }',
    ],
)  # fmt: skip
def test_a_pod_is_what_it_is_decoded_on_its_own(pod: bytes) -> None:
    assert decode_pod(pod) == decode_object(pod, Pod)
    assert decode_pod(pod) == decode_object(pod, Pod)


def test_pods_with_the_same_spec_share_it_whatever_their_node() -> None:
    one, two = decode_pod(raw(SPEC, "one")), decode_pod(raw(SPEC, "two"))
    assert one.spec is two.spec
    placed = decode_pod(raw({"nodeName": "node-1", **SPEC}))
    assert placed.spec.node_name == "node-1"
    assert placed.spec.containers is one.spec.containers
    assert one.spec.node_name == ""


@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        (raw({"containers": 5}), r"\$\.spec\.containers"),
        (raw({"nodeName": 5}), r"\$\.spec\.nodeName"),
        (raw([]), r"\$\.spec"),
        (b'{"metadata":5}', r"\$\.metadata"),
        (b"{", "not valid JSON"),
    ],
)
def test_an_error_names_the_whole_path(pod: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_pod(pod)


def test_a_node_name_that_is_no_text_is_an_error() -> None:
    with pytest.raises(DecodeError):
        decode_pod(b'{"spec":{"nodeName":"\xff","containers":[]}}')
