"""Packages that come only with an extra of the distribution, and the error message if one is missing.

A module imports such packages inside :func:`needing`. ``pip install 'kubesched[run]'`` works wherever kubesched is
installed, from an index or not. In a checkout where kubesched is not installed, ``'.[run]'`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MissingPackageError", "how_to_install", "needing"]


class MissingPackageError(ImportError):
    """A package is not installed. The text says what needs it and how to install it."""


def how_to_install(extra: str = "") -> str:
    """Return the commands that install the packages of ``extra``; by default, the packages of every installation."""
    if not extra:
        return "pip install kubesched (in a checkout: pip install .)"
    return f"pip install 'kubesched[{extra}]' (in a checkout: pip install '.[{extra}]')"


@contextmanager
def needing(purpose: str, extra: str = "") -> Iterator[None]:
    """Guard imports of packages that come with ``extra``. If blocks are nested, the error names purpose and extra of
    the outermost.

    Raises:
        MissingPackageError: if one is not installed.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingPackageError) as error:
        package = (error.name or "").partition(".")[0]
        text = f"{purpose} needs the package {package}, which is not installed: {how_to_install(extra)}"
        raise MissingPackageError(text, name=error.name) from None
