"""Where the files that come along are: examples and benchmark workloads.

In an installed wheel they lie inside the package (``kubesched/_data``, put there by the build); in a checkout they
are the folders next to ``src``.
"""

from __future__ import annotations

from pathlib import Path

import kubesched

__all__ = ["data_folder"]


def data_folder(name: str) -> Path:
    """The folder ``examples`` or ``bench``.

    Raises:
        FileNotFoundError: when this installation has none, saying where it was looked for.
    """
    package = Path(kubesched.__file__).resolve().parent
    places = (package / "_data" / name, package.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(2, f"this installation lacks the folder {name}", str(places[0]))
