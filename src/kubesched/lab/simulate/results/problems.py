"""Problems inside a run, collected from the log: each once, with its count.

Exceptions of plugins, warnings and errors of the cluster's parts would otherwise fill the terminal, or be lost where a
program has no logging. During a run a :class:`ProblemLog` receives everything that this run logs; a program's own log
handlers get it as well. Caller: :mod:`..run.simulation`.
"""

from __future__ import annotations

import logging
import sysconfig
import traceback
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from kubesched.base.data import PACKAGE
from kubesched.scheduler.framework.wrong_answer import WrongAnswerError

from .result import ErrorReport

__all__ = ["ProblemLog"]

#: Most kinds of problems that are kept; further ones are only counted.
_MOST: Final = 100
#: Directories of library code: a plugin's error is reported at the plugin's own code.
_LIBRARIES: Final = tuple(
    str(Path(path).resolve()) for path in (str(PACKAGE), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
)


#: Log of the current task's run: runs of one program, in threads or by turns, keep their problems apart.
_current: ContextVar[ProblemLog | None] = ContextVar("kubesched_problems", default=None)


class ProblemLog(logging.Handler):
    """Log handler for ``kubesched`` while it is entered as a context. It receives records of tasks made inside."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        #: By type, file and line of an exception: its first text and its count.
        self._errors: dict[tuple[str, str, int], tuple[str, int]] = {}
        #: By message without arguments: its first text and its count.
        self._remarks: dict[str, tuple[str, int]] = {}
        #: By place: the exception counted last, as several parts may report the same one.
        self._last: dict[tuple[str, str, int], BaseException] = {}
        self.more = 0
        self._token: Token[ProblemLog | None] | None = None

    def __enter__(self) -> ProblemLog:
        self._token = _current.set(self)
        logging.getLogger("kubesched").addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        logging.getLogger("kubesched").removeHandler(self)
        if self._token is not None:
            _current.reset(self._token)
        self._last.clear()

    def emit(self, record: logging.LogRecord) -> None:
        if _current.get() is not self:
            return
        reported = record.exc_info[1] if record.exc_info else getattr(record, "cause", None)
        error = _first_cause(reported) if isinstance(reported, BaseException) else None
        # Errors of our own types are verdicts on objects, such as a selector that is invalid: no fault of the run.
        is_verdict = type(error).__module__.startswith("kubesched.") and not isinstance(error, WrongAnswerError)
        place = _place(error) if error is not None and not is_verdict else None
        if place is None:
            self._note(self._remarks, str(record.msg), record.getMessage())
        elif error is not None and self._last.get(place) is not error:
            self._last[place] = error
            self._note(self._errors, place, record.getMessage())

    def _note(self, found: dict[Any, tuple[str, int]], key: Any, text: str) -> None:
        first, count = found.get(key, (text, 0))
        if count or len(found) < _MOST:
            found[key] = first, count + 1
        else:
            self.more += 1

    def errors(self) -> list[ErrorReport]:
        """Return the exceptions, in the order in which they were first met."""
        return [
            ErrorReport(text=text, type=name, file=file, line=line, count=count)
            for (name, file, line), (text, count) in self._errors.items()
        ]

    def remarks(self) -> list[str]:
        """Return all other problems, each kind once."""
        texts = [
            text if count == 1 else f"{text} (and {count - 1:,} more like this)"
            for text, count in self._remarks.values()
        ]
        return [*texts, f"{self.more:,} more problems were met"] if self.more else texts


def _first_cause(error: BaseException) -> BaseException:
    seen = {id(error)}
    while error.__cause__ is not None and id(error.__cause__) not in seen:
        error = error.__cause__
        seen.add(id(error))
    return error


def _place(error: BaseException) -> tuple[str, str, int] | None:
    """Return type, file and line where an error was raised; None for one that was not raised.

    For a wrong answer of a plugin the place is the method that gave the answer.
    """
    if isinstance(error, WrongAnswerError):
        return type(error).__name__, error.file, error.line
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    own = [frame for frame in frames if not _is_library(frame.filename)]
    frame = (own or frames)[-1]
    return type(error).__name__, frame.filename, frame.lineno or 0


def _is_library(file: str) -> bool:
    path = str(Path(file).resolve())
    return file.startswith("<") or path.startswith(_LIBRARIES)
