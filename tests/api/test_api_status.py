"""The object ``Status`` of an error."""

from __future__ import annotations

from kubesched.api.wire import ApiError


def test_members_are_in_the_order_in_which_go_writes_them() -> None:
    status = ApiError(409, "Conflict", "no", {"name": "a", "kind": "pods"}).to_status()
    assert list(status) == ["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"]
    assert "details" not in ApiError(401, "Unauthorized", "Unauthorized").to_status()
