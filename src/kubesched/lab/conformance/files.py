"""Golden files on disk: gzipped (or plain) JSON lines, one vector a line."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubesched.api.documents import TOO_DEEP
from kubesched.base.small_file import read_small_file
from kubesched.scheduler.config import FeatureGateError, parse_feature_gates

__all__ = ["BadLineError", "area_of", "golden_files", "read_gates", "read_vectors"]


class BadLineError(ValueError):
    """Line that is not a JSON object. The lines after it can still be read."""


def area_of(path: Path) -> str:
    """Return the area of a file: its name up to the first dot."""
    return path.name.split(".", 1)[0]


def golden_files(paths: Iterable[Path], area: str = "") -> list[Path]:
    """Return the golden files among files and folders, sorted; only those of ``area``, if given.

    Raises:
        FileNotFoundError: when a path does not exist.
    """
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or directory")
        found.update(
            (item for item in path.iterdir() if item.name.endswith((".jsonl", ".jsonl.gz")))
            if path.is_dir()
            else [path]
        )
    return sorted(path for path in found if not area or area_of(path) == area)


def read_gates(path: Path) -> dict[str, dict[str, bool]]:
    """Read feature gates by name of a vector, from lines ``[CLASS] VECTOR GATE=bool,…``; ``#`` begins a comment line.

    Raises:
        ValueError: naming the file and the line that cannot be read.
    """
    try:
        lines = read_small_file(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    found: dict[str, dict[str, bool]] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3):
            raise ValueError(
                f"{path}:{number}: {line!r}: expected the name of a vector and gates such as A=true,B=false"
            )
        try:
            found[words[-2]] = parse_feature_gates(words[-1:])
        except FeatureGateError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return found


def read_vectors(path: Path) -> Iterator[dict[str, Any] | BadLineError]:
    """Yield the vectors of a file in order. A bad line is yielded as the error that describes it.

    Raises:
        ValueError: naming the file, when it cannot be read to its end.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is no regular file")
    decoder = msgspec.json.Decoder(dict[str, Any])
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
        with gzip.open(path) if packed else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if b"\0" in line:
                    raise ValueError(f"{path}: line {number}: a NUL byte: not a file of JSON lines")
                try:
                    yield decoder.decode(line)
                except RecursionError:
                    yield BadLineError(f"{path}: line {number}: {TOO_DEEP}")
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    yield BadLineError(f"{path}: line {number}: not a JSON object: {error}")
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: not a gzipped file of JSON lines: {error}") from None
