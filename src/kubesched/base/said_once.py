"""Problems that are alike, said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["said_once"]

_NAMES: Final = re.compile(r'"[^"]*"|\[\d+\]|line \d+')


def said_once(texts: Iterable[str]) -> Iterator[str]:
    """Yield the first text of each kind, and how many more there are. Quoted names and positions make no difference."""
    kinds: dict[str, list[str]] = {}
    for text in texts:
        kinds.setdefault(_NAMES.sub("", text), []).append(text)
    for alike in kinds.values():
        yield alike[0] + (f" (and {len(alike) - 1:,} more like this)" if len(alike) > 1 else "")
