"""Pages of a list and the tokens that continue them.

A token names the version of the first page and the last key shown, so every page shows one moment.
Caller: ``store.list``.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from typing import Any

import msgspec

from ..api.wire import ApiError, ListPage
from .fields import Filter
from .objects import Stored, encode
from .table import Key

__all__ = ["make_page", "read_token"]


def make_page(items: list[Stored], filter_: Filter, version: int, after: Key | None, limit: int) -> ListPage:
    start = 0 if after is None else bisect_right(items, after, key=lambda item: (item.namespace, item.name))
    if limit <= 0 and filter_.is_trivial:
        return ListPage(list(items[start:]), str(version))
    found: list[Any] = []
    for index in range(start, len(items)):
        item = items[index]
        if not filter_.matches(item):
            continue
        if limit > 0 and len(found) == limit:
            remaining = None if filter_.selects else sum(1 for rest in items[index:] if filter_.matches(rest))
            return ListPage(found, str(version), _write_token(version, found[-1]), remaining)
        found.append(item)
    return ListPage(found, str(version))


def _write_token(version: int, last: Stored) -> str:
    start = [last.namespace, last.name]
    raw = encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def read_token(token: str) -> tuple[int, Key]:
    try:
        data = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = data["start"]
        return int(data["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        raise ApiError.bad_request("continue key is not valid: it must be the token of an earlier page") from None
