"""Kinds are values: equal when their fields are, wherever they were made."""

from __future__ import annotations

import dataclasses

import pytest

from kubesched.api.kinds import KINDS, NODES, PODS, Kind


def test_a_kind_equals_its_copy_and_is_found_by_it() -> None:
    for kind in KINDS:
        copy = dataclasses.replace(kind)
        assert copy is not kind
        assert copy == kind
        assert {kind: 1}[copy] == 1


@pytest.mark.parametrize("change", [{"version": "v2"}, {"kind": "Peas"}, {"namespaced": False}, {"custom": True}])
def test_every_member_counts(change: dict[str, str | bool]) -> None:
    assert dataclasses.replace(PODS, **change) != PODS  # type: ignore[arg-type]


def test_other_kinds_and_other_things_are_not_equal() -> None:
    assert PODS != NODES
    assert len(set(KINDS)) == len(KINDS)
    assert PODS != "pods"
    assert isinstance(PODS, Kind)
