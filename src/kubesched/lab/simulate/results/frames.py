"""Data frames of pandas or polars from columns, with whichever is installed. Neither is needed for anything else.

Callers: :mod:`.views`, and other tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from kubesched.base.extras import MissingPackageError, how_to_install

__all__ = ["frame_of"]

_LIBRARIES: Final = ("pandas", "polars")


def frame_of(columns: Mapping[str, list[Any]], library: str | None = None) -> Any:
    """Return a data frame with these columns, of ``pandas`` or ``polars``; by default of the one that is installed.

    Raises:
        ValueError: for another library.
        ImportError: when it is not installed.
    """
    if library is not None and library not in _LIBRARIES:
        raise ValueError(f"library={library!r}: expected {' or '.join(_LIBRARIES)}")
    for name in (library,) if library else _LIBRARIES:
        try:
            return import_module(name).DataFrame(dict(columns))
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    missing = library or " or ".join(_LIBRARIES)
    how = "pip install polars" if library == "polars" else how_to_install("notebook")
    raise MissingPackageError(f"data frames need {missing}, which is not installed: {how}")
