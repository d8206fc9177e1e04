"""Long lists are read in steps."""

from __future__ import annotations

import json

import pytest

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError, ListPage
from kubesched.base.turns import finish
from kubesched.client import http_reading
from kubesched.client.http_reading import reading_list


def a_list(count: int) -> bytes:
    items = [{"metadata": {"name": f"p{number}", "namespace": "ns", "resourceVersion": "7"}} for number in range(count)]
    return json.dumps({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": items}).encode()


def test_a_long_list_lets_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_reading, "_ITEMS_PER_STEP", 2)
    assert sum(1 for _ in reading_list(PODS, a_list(7))) == 3
    check(finish(reading_list(PODS, a_list(7))))


def check(page: ListPage) -> None:
    assert [item.key for item in page.items] == [f"ns/p{number}" for number in range(7)]
    assert (page.resource_version, page.continue_token) == ("9", "more")
    assert page.items[0].typed.metadata.name == "p0"


@pytest.mark.parametrize("size", [40, 100, 170, 1_000])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_large_list_is_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, size: int, nested: bool, separators: tuple[str, str]
) -> None:
    """Also where objects contain what lies between two of them."""
    monkeypatch.setattr(http_reading, "_PART", size)
    spec = {"spec": {"volumes": [{"metadata": {"name": str(at)}} for at in range(9)]}} if nested else {}
    whole = {**json.loads(a_list(7)), "kind": "PodList"}
    whole["items"] = [{**item, **spec} for item in whole["items"]]
    raw = json.dumps(whole, separators=separators).encode()
    page = finish(reading_list(PODS, bytearray(raw)))
    check(page)
    for item in page.items:
        assert item.data() == {
            "kind": "Pod",
            "apiVersion": "v1",
            **whole["items"][0],
            "metadata": item.data()["metadata"],
        }


def test_parts_of_a_large_list_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_reading, "_PART", 100)
    raw = json.dumps(json.loads(a_list(100)), separators=(",", ":")).encode()
    sizes: list[int] = []
    decode = http_reading._list

    def counted(part: bytes) -> object:
        sizes.append(len(part))
        return decode(part)

    monkeypatch.setattr(http_reading, "_list", counted)
    assert len(finish(reading_list(PODS, raw)).items) == 100
    assert len(sizes) > 30
    assert max(sizes) < 400


@pytest.mark.parametrize(
    "raw", [b"[]", b'{"items": [{"metadata": 1}]}', a_list(3)[:-9], a_list(3).replace(b" ", b"")[:-9]]
)
@pytest.mark.parametrize("size", [50, 1_000])
def test_what_is_no_list_is_an_error_of_the_server(monkeypatch: pytest.MonkeyPatch, raw: bytes, size: int) -> None:
    monkeypatch.setattr(http_reading, "_PART", size)
    with pytest.raises(ApiError, match="list of pods: the server's answer cannot be read"):
        finish(reading_list(PODS, raw))
