"""Reader of a sweep that is described in a file. Options on the command line override parts of it.

    apiVersion: kubesched.io/v1alpha1
    kind: Sweep
    function: table.py:run        # optional; without it, runs are simulations
    arguments: {nodes: 20}        # the same for all runs
    grid:                         # every combination
      config: {default: null, packing: packing.yaml}     # labels and values, or a list of values
      seed: 0-9
    runs: []                      # single runs, in addition
    figures: [pods_pending]       # the ones that are shown first; all of them are recorded
    by: [config]                  # what figures are summarised by; default: all parameters but the seed

The path of the function, and those that simulations read, are relative to the file. Caller: ``kubesched sweep``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.api.documents import TextError
from kubesched.api.yamltext import read_single

from .functions import qualified
from .plan import Run, SweepError, make_runs
from .running import SIMULATE
from .simulated import with_paths_from

__all__ = ["Description", "read_sweep", "read_value"]

_API_VERSION: Final = "kubesched.io/v1alpha1"
_KIND: Final = "Sweep"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    function: str = SIMULATE
    arguments: dict[str, Any] = {}
    grid: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    figures: list[str] | None = None
    by: list[str] | None = None


class Description(msgspec.Struct, frozen=True):
    """Description of a sweep: its plan, and the results to show."""

    function: str
    runs: list[Run]
    figures: list[str] | None
    by: list[str] | None


def read_sweep(
    path: str | Path | None,
    *,
    function: str | None = None,
    grid: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Description:
    """Return the sweep of a file, or of the arguments alone. ``grid`` and ``arguments`` overrule the values in the
    file.

    Raises:
        SweepError: when it cannot be used, naming the file and the field.
        OSError: when the file cannot be read.
    """
    file = _read(Path(path)) if path is not None else _File(_API_VERSION, _KIND)
    where = Path(path).parent if path is not None else Path()
    called = qualified(function, Path()) if function else qualified(file.function, where)
    given = {**(grid or {}), **(arguments or {})}
    simulates = called == SIMULATE

    def from_file(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in given}

    def placed(runs: Sequence[Run]) -> list[Run]:
        """Return runs whose paths, if they come from the file, are relative to the file."""
        if not simulates:
            return list(runs)
        return [
            Run(run.names, {**with_paths_from(where, run.arguments), **{n: run.arguments[n] for n in given}})
            for run in runs
        ]

    axes = {name: (grid or {}).get(name, values) for name, values in file.grid.items() if name not in (arguments or {})}
    try:
        runs = make_runs({**axes, **(grid or {})}, file.runs, {**from_file(file.arguments), **(arguments or {})})
    except SweepError as error:
        raise SweepError(f"{path}: {error}" if path is not None else str(error)) from None
    return Description(called, placed(runs), file.figures, file.by)


def read_value(text: str, name: str) -> Any:
    """Return a value given on the command line, as YAML.

    Raises:
        SweepError: when it cannot be read.
    """
    try:
        return read_single(text, name)
    except TextError as error:
        raise SweepError(error.in_file(name)) from None


def _read(path: Path) -> _File:
    try:
        data = read_single(path.read_bytes(), str(path))
        if not isinstance(data, Mapping):
            raise SweepError(f"{path}: expected a mapping with apiVersion {_API_VERSION} and kind {_KIND}")
        if (data.get("apiVersion"), data.get("kind")) != (_API_VERSION, _KIND):
            found = f"{data.get('apiVersion')!r} and {data.get('kind')!r}"
            raise SweepError(f"{path}: apiVersion and kind are {found}; expected {_API_VERSION} and {_KIND}")
        return msgspec.convert(data, _File)
    except TextError as error:
        raise SweepError(error.in_file(str(path))) from None
    except msgspec.ValidationError as error:
        raise SweepError(f"{path}: {error}") from None
