"""Pages of a list and the tokens that continue them.

A token names the version of the first page and the last key shown, so every page shows one moment. A token of a
version that is no longer known can be traded for one of version -1, which continues at that key with the current state.
Caller: ``store.list``.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from ...api.turns import Steps
from ...api.wire import ApiError, ListPage
from ..schema import Stored, encode
from .fields import Filter
from .key_order import Key, Moment

__all__ = ["BATCH", "make_page", "read_token", "write_token"]

#: Objects evaluated in one step of a long list.
BATCH: Final = 1024


def make_page(moment: Moment, filter_: Filter, version: int, after: Key | None, limit: int) -> Steps[ListPage]:
    """The objects after a key that a filter selects, at most ``limit`` unless that is 0.

    ``moment`` has the filter's namespace only. All of the page is as it is in the first step.
    """
    start = 0 if after is None else moment.after(after)
    count = len(moment.keys)
    found: list[Stored] = []
    rest = 0
    if limit > 0 and not filter_.selects:
        found, rest = moment.items(start, start + limit), max(0, count - start - limit)
    else:
        if count - start > BATCH:
            moment = moment.kept()
        for place in range(start, count, BATCH):
            if place > start:
                yield
            items = moment.items(place, place + BATCH)
            if filter_.selects:
                items = [item for item in items if filter_.matches(item)]
            found += items
            if 0 < limit < len(found):
                rest = 1  # how many more there are is not said
                del found[limit:]
                break
    if not rest:
        return ListPage(list[Any](found), str(version))
    token = write_token(version, (found[-1].namespace, found[-1].name))
    return ListPage(list[Any](found), str(version), token, None if filter_.selects else rest)


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
