"""Files that come along: examples and benchmark workloads.

In an installed wheel they lie inside the package (``kubesched/_data``, put there by the build); in a checkout they
are the folders next to ``src``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["PACKAGE", "data_folder"]

#: Folder of the package itself.
PACKAGE: Final = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """The folder ``examples`` or ``bench``.

    Raises:
        FileNotFoundError: when this installation has none, saying where it was looked for.
    """
    places = (PACKAGE / "_data" / name, PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(2, f"this installation lacks the folder {name}", str(places[0]))
