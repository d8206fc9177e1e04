"""Function of a sweep: importable, given as an object or as text, and called once per run.

The text is ``package.module:name`` or ``path/file.py:name``. It is sent to processes and machines if there is one, so
that the function need not be picklable. Callers: :mod:`.running`, and every worker.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from .plan import Scalar, SweepError

__all__ = ["Function", "Outcome", "load_function", "name_of", "perform", "qualified"]

#: Function of a sweep. It is called with the arguments of a run by name, and returns its figures by name.
Function = Callable[..., Mapping[str, Any]]

_LONGEST_TEXT: Final = 2_000


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one run: its figures, or an error."""

    figures: dict[str, Scalar] = {}
    #: Text of the exception, in a line or a few.
    error: str | None = None
    #: Seconds of real time that the run took.
    seconds: float = 0.0


def qualified(text: str, directory: Path) -> str:
    """Return the text with an absolute path, if it names a file. Relative paths start at ``directory``.

    Raises:
        SweepError: when the text is neither ``package.module:name`` nor ``path/file.py:name``.
    """
    module, colon, name = text.rpartition(":")
    if not colon or not module or not name.isidentifier():
        raise SweepError(f"function {text!r}; expected package.module:name or path/file.py:name")
    return f"{(directory / module).resolve()}:{name}" if module.endswith(".py") else text


@functools.cache
def load_function(text: str) -> Function:
    """Return the function that a text names. A file's directory is put in the module path, as for a script.

    Raises:
        SweepError: when it cannot be imported.
    """
    module_name, _, name = qualified(text, Path()).rpartition(":")
    if module_name.endswith(".py"):
        path = Path(module_name)
        if not path.is_file():
            raise SweepError(f"function {text}: there is no file {path}")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        module_name = path.stem
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise SweepError(f"function {text}: cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise SweepError(f"function {text}: module {module_name} has no function {name}")
    return function  # type: ignore[no-any-return]


def name_of(function: str | Function) -> str:
    """Return the name of a function in a results file."""
    if isinstance(function, str):
        return function
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def perform(function: str | Function, arguments: Mapping[str, Any]) -> Outcome:
    """Make one run, in the present process. An exception becomes an error in its outcome."""
    begin = time.perf_counter()
    try:
        called = load_function(function) if isinstance(function, str) else function
        figures = _figures(called(**arguments))
        return Outcome(figures, seconds=round(time.perf_counter() - begin, 6))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Outcome(error=_text(error), seconds=round(time.perf_counter() - begin, 6))


def _text(error: BaseException) -> str:
    """Return the text of an exception and its place. Errors of kubesched name the problem of the input themselves."""
    text = f"{type(error).__name__}: {error}"
    if not type(error).__module__.startswith("kubesched."):
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            text = f"{text} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    return text[:_LONGEST_TEXT]


def _figures(given: Any) -> dict[str, Scalar]:
    """Return figures as plain values; NumPy's numbers become Python's.

    Raises:
        SweepError: for a value that has no place in a table.
    """
    if not isinstance(given, Mapping):
        raise SweepError(f"the function returned a {type(given).__name__}; expected figures by name")
    figures: dict[str, Scalar] = {}
    for name, value in given.items():
        plain = value.item() if hasattr(value, "item") and not isinstance(value, str) else value
        if plain is not None and not isinstance(plain, str | int | float | bool):
            raise SweepError(f"figure {name} is a {type(value).__name__}; expected a number, a text or None")
        if isinstance(plain, float) and not math.isfinite(plain):
            raise SweepError(f"figure {name} is {plain}; expected a finite number, or None")
        figures[str(name)] = plain
    return figures
