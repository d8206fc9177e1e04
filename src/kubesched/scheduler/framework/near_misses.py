"""Misspelt names in a plugin class: names close to one of the interface, such as ``normalise_score``.

A method with such a name would never be called. Used by :func:`~.registry.check_plugin`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Final

__all__ = ["near_miss"]

#: Least similarity of two names, from 0 to 1, by difflib's measure.
_ALIKE: Final = 0.88


def near_miss(plugin: type, known: Iterable[str], bases: tuple[type, ...]) -> tuple[str, str] | None:
    """Return a public name of the class that is close to a ``known`` name, and the known name; or None.

    Names of ``bases`` do not count. If the class also defines the known name, the other one is a helper and does not
    count: ``scores`` beside ``score``.
    """
    names = {_plain(name): name for name in known}
    owners = [owner for owner in plugin.__mro__ if owner is not object and owner not in bases]
    for owner in owners:
        for name, value in vars(owner).items():
            if name.startswith("_") or name in names.values() or inspect.isclass(value):
                continue
            plain = _plain(name)
            found = [plain] if plain in names else difflib.get_close_matches(plain, names, n=1, cutoff=_ALIKE)
            if found and not any(names[found[0]] in vars(each) for each in owners):
                return name, names[found[0]]
    return None


def _plain(name: str) -> str:
    """Return a name in lower case without underscores: ``preFilter`` and ``pre_filter`` become equal."""
    return name.replace("_", "").lower()
