"""Pages that a program adds to a server of its own: a function from path and query to an answer.

The server has authenticated and authorized the request before it asks for a page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs

__all__ = ["Answer", "Page", "ask"]


class Answer(NamedTuple):
    """Answer of a page. ``retry_after`` are seconds after which the client may ask again; 0 for none."""

    status: int
    body: bytes
    content_type: str
    retry_after: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {"Content-Type": self.content_type, "X-Content-Type-Options": "nosniff"}
        return {**headers, "Retry-After": str(self.retry_after)} if self.retry_after else headers


#: Function from a path, the query's values by name and the Accept header to the answer of a GET request.
Page: TypeAlias = Callable[[str, Mapping[str, Sequence[str]], str], Awaitable[Answer]]


async def ask(page: Page, path: str, query_text: str, accept: str) -> Answer:
    """Ask a page. ``query_text`` is the query as it stands in the URL; parameters without a value have an empty one."""
    return await page(path, parse_qs(query_text, keep_blank_values=True, errors="replace"), accept)
