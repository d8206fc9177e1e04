"""Pages that a program adds to a server of its own: a function from path and query to an answer.

The server has authenticated and authorized the request before it asks for a page. Pages read their queries with
:func:`check_names` and :func:`one_value`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs

from .lines import printable

__all__ = ["Answer", "BadQueryError", "Page", "Query", "accepts_gzip", "ask", "check_names", "one_value"]

Query: TypeAlias = Mapping[str, Sequence[str]]


class BadQueryError(Exception):
    """A query that cannot be used. The text names the parameter, its value, and what would be right."""


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


def check_names(query: Query, *known: str, of: str = "page") -> None:
    """Check that a query has only known parameters. ``of`` is the word for what they belong to.

    Raises:
        BadQueryError: if it has another one.
    """
    unknown = next((name for name in query if name not in known), None)
    if unknown is not None:
        there_is = f"known are {', '.join(known)}" if known else f"this {of} has none"
        raise BadQueryError(f"{printable(unknown[:32])!r}: no such parameter; {there_is}")


def one_value(query: Query, name: str) -> str:
    """Return the value of a parameter, empty if it is not given.

    Raises:
        BadQueryError: if it is given several times.
    """
    values = query.get(name, ())
    if len(values) > 1:
        raise BadQueryError(f"{name}: expected once, given {len(values)} times")
    return values[0] if values else ""


def accepts_gzip(header: str) -> bool:
    """Return True if an Accept-Encoding header allows gzip."""
    for item in header.split(","):
        coding, *parameters = (part.strip().lower() for part in item.split(";"))
        if coding in ("gzip", "*"):
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False
