"""Packages that only an extra of the distribution brings: importing them, and the message when one is missing.

A module whose imports an installation may lack makes them inside :func:`needing`. ``pip install 'kubesched[run]'`` works
wherever kubesched is installed, from an index or not; in a checkout where it is not, ``'.[run]'`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MissingPackageError", "how_to_install", "needing"]


class MissingPackageError(ImportError):
    """A package is not installed; the text says what needs it and how it is installed."""


def how_to_install(extra: str = "") -> str:
    """The commands that install what ``extra`` brings; without one, what every installation should have."""
    if not extra:
        return "pip install kubesched (in a checkout: pip install .)"
    return f"pip install 'kubesched[{extra}]' (in a checkout: pip install '.[{extra}]')"


@contextmanager
def needing(purpose: str, extra: str = "") -> Iterator[None]:
    """Imports of packages that come with ``extra``. The outermost block names its own purpose and extra.

    Raises:
        MissingPackageError: when one is not installed.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingPackageError) as error:
        package = (error.name or "").partition(".")[0]
        text = f"{purpose} needs the package {package}, which is not installed: {how_to_install(extra)}"
        raise MissingPackageError(text, name=error.name) from None
