"""Files that are part of the distribution: examples and benchmark workloads.

An installed wheel has them inside the package (``kubesched/_data``, put there by the build). A checkout has them
in the folders next to ``src``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["PACKAGE", "data_folder"]

#: Folder of the package itself.
PACKAGE: Final = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """Return the folder ``examples`` or ``bench``.

    Raises:
        FileNotFoundError: if this installation lacks the folder; it names the place where it was looked for.
    """
    places = (PACKAGE / "_data" / name, PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(2, f"this installation lacks the folder {name}", str(places[0]))
