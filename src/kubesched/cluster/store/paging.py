"""Pages of a list and the tokens that continue them.

A token names the version of the first page and the last key shown, so every page shows one moment. A token of a
version that is no longer known can be traded for one of version -1, which goes on at that key in the present.
Caller: ``store.list``.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from typing import Any

import msgspec

from ...api.wire import ApiError, ListPage
from ..schema import Stored, encode
from .fields import Filter
from .table import Key

__all__ = ["make_page", "read_token", "write_token"]


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
            last = (found[-1].namespace, found[-1].name)
            return ListPage(found, str(version), write_token(version, last), remaining)
        found.append(item)
    return ListPage(found, str(version))


def write_token(version: int, last: Key) -> str:
    """The token of the page after ``last``; a negative version means the present."""
    raw = encode({"v": "meta.k8s.io/v1", "rv": version, "start": last})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def read_token(token: str) -> tuple[int, Key]:
    try:
        data = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = data["start"]
        return int(data["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        raise ApiError.bad_request("continue key is not valid: it must be the token of an earlier page") from None
