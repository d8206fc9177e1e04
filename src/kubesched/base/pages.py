"""Pages that a program adds to a server of its own: a function from path and query to an answer.

The server has authenticated and authorized the request before it asks for a page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["Answer", "Page"]


class Answer(NamedTuple):
    """Answer of a page. ``retry_after`` are seconds after which the client may ask again; 0 for none."""

    status: int
    body: bytes
    content_type: str
    retry_after: int = 0


#: Function from a path, the query's values by name and the Accept header to the answer of a GET request.
Page: TypeAlias = Callable[[str, Mapping[str, Sequence[str]], str], Awaitable[Answer]]
