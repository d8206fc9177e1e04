"""Devices with binding conditions: when they are ready, failed, or too late."""

from __future__ import annotations

from typing import Any

import pytest
from dra_kit import DRIVER, claim, results

from kubesched.base.times import parse_time, timestamp
from kubesched.scheduler.plugins.dynamic_resources.conditions import (
    BindingFailedError,
    has_binding_conditions,
    is_ready,
    is_timed_out,
)

WANTED: dict[str, Any] = {"bindingConditions": ["attached", "formatted"], "bindingFailureConditions": ["failed"]}


def device(*conditions: tuple[str, str], name: str = "gpu-0") -> dict[str, Any]:
    listed = [
        {"type": kind, "status": status, "reason": "Because", "message": "of this"} for kind, status in conditions
    ]
    return {"driver": DRIVER, "pool": "n1", "device": name, "conditions": listed}


def test_a_claim_without_allocation_is_not_ready() -> None:
    assert not is_ready(claim())
    assert not has_binding_conditions(claim())


def test_devices_without_conditions_are_ready() -> None:
    assert is_ready(claim(allocation=results("gpu-0")))


@pytest.mark.parametrize(
    ("devices", "ready"),
    [
        ([], False),
        ([device()], False),
        ([device(("attached", "True"))], False),
        ([device(("attached", "True"), ("formatted", "False"))], False),
        ([device(("attached", "True"), ("formatted", "True"), name="gpu-1")], False),
        ([device(("attached", "True"), ("formatted", "True"), ("failed", "False"))], True),
    ],
)
def test_every_condition_of_the_device_has_to_be_true(devices: list[Any], ready: bool) -> None:
    assert is_ready(claim(allocation=results("gpu-0", **WANTED), devices=devices)) is ready


def test_a_failure_condition_ends_it() -> None:
    failed = claim("c7", allocation=results("gpu-0", **WANTED), devices=[device(("failed", "True"))])
    text = r'^device binding failed: claim=c7, reason=Because, message="of this"$'
    with pytest.raises(BindingFailedError, match=text):
        is_ready(failed)


def test_time_runs_from_the_allocation() -> None:
    start = 1_000_000.0
    waiting = claim(allocation={**results("gpu-0", **WANTED), "allocationTimestamp": timestamp(start)})
    assert parse_time(timestamp(start)) == start
    assert not is_timed_out(waiting, 600, start + 600)
    assert is_timed_out(waiting, 600, start + 601)
    assert not is_timed_out(claim(allocation=results("gpu-0", **WANTED)), 600, start + 601)
    plain = claim(allocation={**results("gpu-0"), "allocationTimestamp": timestamp(start)})
    assert not is_timed_out(plain, 600, start + 601)
