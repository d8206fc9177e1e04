"""Log lines in klog's formats, as text or as one JSON object a line, with levels of detail, also by module.

The level of detail V(n) is the Python level ``INFO - n``. A message passes key-value pairs as
``extra={"pairs": {...}}``. Source: rules/configuration §7, with upstream's keys.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import sys
import traceback
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final, TextIO

from kubesched.base.log_limit import LogLimit

__all__ = ["JsonFormatter", "KlogFormatter", "VModule", "configure", "level_of", "with_pairs"]

_LETTERS: Final = ((logging.ERROR, "E"), (logging.WARNING, "W"))
#: Verbosity from which on no line is left out.
_ALL_LINES: Final = 4


def level_of(verbosity: int) -> int:
    """Return the Python level of V(``verbosity``). V(19) and beyond share the lowest level."""
    return max(1, logging.INFO - verbosity)


def with_pairs(**pairs: Any) -> dict[str, Any]:
    """Return the ``extra`` for a log call. Example: ``log.info("Assigned", extra=with_pairs(pod=key))``."""
    return {"pairs": pairs}


def _message(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Return the text and its key-value pairs. An exception becomes the pair ``err``."""
    pairs = dict(getattr(record, "pairs", {}))
    if record.exc_info and record.exc_info[1] is not None:
        pairs.setdefault("err", str(record.exc_info[1]) or type(record.exc_info[1]).__name__)
    return record.getMessage(), pairs


class KlogFormatter(logging.Formatter):
    """Format ``I0102 15:04:05.000000   PID file.py:line] "message" key="value"``."""

    def format(self, record: logging.LogRecord) -> str:
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "I")
        when = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        place = f"{PurePath(record.pathname).name}:{record.lineno}"
        text, pairs = _message(record)
        line = f"{letter}{when} {os.getpid():7d} {place}] {_quoted(text)}"
        for key, value in pairs.items():
            line += f" {key}={_value(value)}"
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


class JsonFormatter(logging.Formatter):
    """Format ``{"ts": milliseconds, "caller": "file.py:line", "msg": …, "v": n, key: value}``; errors have no ``v``."""

    def format(self, record: logging.LogRecord) -> str:
        text, pairs = _message(record)
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{PurePath(record.pathname).parent.name}/{PurePath(record.pathname).name}:{record.lineno}",
            "msg": text,
        }
        if record.levelno < logging.WARNING:
            entry["v"] = max(0, logging.INFO - record.levelno)
        entry.update(
            {key: value if isinstance(value, int | float | bool) else str(value) for key, value in pairs.items()}
        )
        if record.exc_info:
            entry["stacktrace"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    if "\n" in text:
        indented = text.replace("\n", "\n\t")
        return f"<\n\t{indented}\n >"
    return _quoted(text)


class VModule(logging.Filter):
    """Filter of records by level: a pattern that matches the module sets the limit, otherwise the general level."""

    def __init__(self, verbosity: int, patterns: dict[str, int]) -> None:
        super().__init__()
        self._general = level_of(verbosity)
        self._patterns = {pattern: level_of(level) for pattern, level in patterns.items()}

    def set_verbosity(self, verbosity: int) -> None:
        """Change the general level."""
        self._general = level_of(verbosity)
        logging.getLogger("kubesched").setLevel(self.lowest)

    @property
    def lowest(self) -> int:
        return min([self._general, *self._patterns.values()])

    def filter(self, record: logging.LogRecord) -> bool:
        module = PurePath(record.pathname).stem
        for pattern, level in self._patterns.items():
            if fnmatch.fnmatchcase(module, pattern) or fnmatch.fnmatchcase(record.name, pattern):
                return record.levelno >= level
        return record.levelno >= self._general


class _Below(logging.Filter):
    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < self._level


def configure(
    *,
    json_lines: bool = False,
    verbosity: int = 0,
    vmodule: dict[str, int] | None = None,
    split: bool = False,
    stream: TextIO | None = None,
) -> VModule:
    """Send all log lines of the package to ``stream`` (default: stderr), in place of any earlier setup.

    ``split`` sends errors to stderr and the rest to stdout. The result is the filter, whose level can be changed later.
    Of warnings and errors that are alike some are left out (:class:`.LogLimit`), unless ``verbosity`` is 4 or more.
    """
    shown = VModule(verbosity, vmodule or {})
    formatter = JsonFormatter() if json_lines else KlogFormatter()
    handlers: list[logging.Handler] = [logging.StreamHandler(stream or sys.stderr)]
    if split:
        handlers[0].setLevel(logging.ERROR)
        rest = logging.StreamHandler(sys.stdout)
        rest.addFilter(_Below(logging.ERROR))
        handlers.append(rest)
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.addFilter(shown)
        if verbosity < _ALL_LINES:
            handler.addFilter(LogLimit())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("kubesched").setLevel(shown.lowest)
    return shown
