"""Long lists are read in steps."""

from __future__ import annotations

import json

import pytest

from kubesched.api.kinds import PODS
from kubesched.api.turns import finish
from kubesched.api.wire import ApiError
from kubesched.client import http_reading
from kubesched.client.http_reading import reading_list


def a_list(count: int) -> bytes:
    items = [{"metadata": {"name": f"p{number}", "namespace": "ns", "resourceVersion": "7"}} for number in range(count)]
    return json.dumps({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": items}).encode()


@pytest.mark.parametrize(("large", "steps"), [(1 << 30, 3), (1, 4)])
def test_a_long_list_lets_others_in_between(monkeypatch: pytest.MonkeyPatch, large: int, steps: int) -> None:
    monkeypatch.setattr(http_reading, "_ITEMS_PER_STEP", 2)
    monkeypatch.setattr(http_reading, "_LARGE", large)
    assert sum(1 for _ in reading_list(PODS, a_list(7))) == steps
    page = finish(reading_list(PODS, a_list(7)))
    assert [item.key for item in page.items] == [f"ns/p{number}" for number in range(7)]
    assert (page.resource_version, page.continue_token) == ("9", "more")
    assert page.items[0].typed.metadata.name == "p0"


@pytest.mark.parametrize("raw", [b"[]", b'{"items": [{"metadata": 1}]}', a_list(3)[:-9]])
def test_what_is_no_list_is_an_error_of_the_server(raw: bytes) -> None:
    with pytest.raises(ApiError, match="list of pods: the server's answer cannot be read"):
        finish(reading_list(PODS, raw))
