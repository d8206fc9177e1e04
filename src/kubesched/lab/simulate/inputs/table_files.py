"""Tables of a result as files: CSV, JSON (a list of objects) or Parquet, by the ending of the name.

Parquet needs pyarrow, which comes with the extra ``parquet``. Caller: the command line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from kubesched.base.extras import how_to_install
from kubesched.base.large_json import large_json

__all__ = ["ENDINGS", "TableFileError", "check_file", "write_table"]

ENDINGS: Final = (".csv", ".json", ".parquet")


class TableFileError(ValueError):
    """File that a table cannot be written to. The message names a correct form."""


def check_file(path: str | Path) -> None:
    """Check that a table can be written in the format of this file's name.

    Raises:
        TableFileError: for another ending, or a missing library.
    """
    suffix = Path(path).suffix
    if suffix not in ENDINGS:
        raise TableFileError(f"{path}: the name must end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if suffix == ".parquet":
        _pyarrow(path)


def _pyarrow(path: str | Path) -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        text = f"Parquet needs pyarrow, which is not installed: {how_to_install('parquet')}, or write .csv"
        raise TableFileError(f"{path}: {text}") from None


def write_table(columns: Mapping[str, list[Any]], path: str | Path, file: BinaryIO) -> None:
    """Write columns of equal lengths, in the format of the name ``path``.

    None is an empty cell in CSV, null in JSON and Parquet.

    Raises:
        TableFileError: see :func:`check_file`.
        OSError: when the file cannot be written.
    """
    check_file(path)
    suffix = Path(path).suffix
    rows = zip(*columns.values(), strict=True)
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        file.write(text.getvalue().encode(errors="backslashreplace"))
    elif suffix == ".json":
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        file.write(large_json(found, indent=1) + b"\n")
    else:
        pyarrow, parquet = _pyarrow(path)
        parquet.write_table(pyarrow.table(dict(columns)), file)
