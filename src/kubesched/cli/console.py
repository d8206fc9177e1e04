"""Output of commands: styled lines on stdout, progress bars on stderr.

There is colour only on a terminal, and no escape sequence at all with ``NO_COLOR`` or ``TERM=dumb``. A progress bar is
shown only if stderr is a terminal and ``--quiet`` was not given. Results always go to stdout, all else to stderr.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kubesched.base.lines import printable
from kubesched.base.log_limit import LogLimit

from .errors import CliError

if TYPE_CHECKING:
    from kubesched.base.lines import Line

__all__ = [
    "KEPT",
    "ProgressBar",
    "flush",
    "log_warnings",
    "print_lines",
    "progress_bar",
    "terminal_width",
    "warn",
    "write",
    "write_document",
    "write_json",
]

_STYLES: Final = {"": "", "title": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "red"}
_REFRESH_SECONDS: Final = 0.1
#: Seconds between lines of progress where there is no terminal.
_LINE_SECONDS: Final = 10.0
#: White space that remarks and errors may have.
KEPT: Final = "\n\t"


def write(text: str) -> None:
    """Write text unchanged to stdout."""
    with _writing():
        sys.stdout.write(text)


def flush() -> None:
    """Write the rest of the output. Without this, Python would only mention a failure to write it, at exit."""
    with _writing():
        sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again when it ends
        raise CliError(f"the output cannot be written: {error.strerror}") from None


def write_json(data: Any) -> None:
    """Write a document as indented JSON to stdout."""
    from kubesched.base.large_json import large_json  # noqa: PLC0415 - only for a document

    write(large_json(data, indent=2).decode() + "\n")


def write_document(document: Any, form: str, lines: Callable[[], Iterable[Line]]) -> None:
    """Write a document to stdout as ``json`` or ``yaml``; in any other form its lines."""
    if form == "json":
        write_json(document)
    elif form == "yaml":
        import msgspec  # noqa: PLC0415 - only for a document

        from kubesched.api.yamltext import to_yaml  # noqa: PLC0415 - only for a document
        from kubesched.base.large_json import as_text  # noqa: PLC0415 - only for a document

        write(to_yaml(as_text(msgspec.to_builtins(document)), sort_keys=False))
    else:
        print_lines(lines())


def log_warnings() -> None:
    """Send warnings and errors of the package to stderr; of those that are alike some are left out (:class:`.LogLimit`)."""
    handler = logging.StreamHandler()
    handler.addFilter(LogLimit())
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", handlers=[handler])


def warn(text: str) -> None:
    """Print a remark to stderr. Escape sequences in it have no effect."""
    print(f"kubesched: {printable(text, keep=KEPT)}", file=sys.stderr)


def terminal_width() -> int | None:
    """Return the number of characters in a line on stdout; None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_lines(lines: Iterable[Line]) -> None:
    """Print styled lines to stdout. They are plain, uncut text if stdout is no terminal.

    Control characters, which texts of objects may hold, are escaped in both cases: a pipe may end at a terminal.
    """
    lines = [line._replace(text=printable(line.text, keep="\t")) for line in lines]
    if not sys.stdout.isatty() or _plain():
        write("".join(f"{line.text}\n" for line in lines))
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line.text, style=_STYLES[line.style]))


def _plain() -> bool:
    """True if no escape sequence may be printed at all. Rich would still print bold type and move progress bars."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class ProgressBar:
    """Progress bar. It has no thread, and draws only when :meth:`update` is called. Calls may be frequent."""

    def update(self, done: int, total: int) -> None:
        """Take note of the progress. ``total`` 0 means unknown."""


class _Lines(ProgressBar):
    """Progress of long work as lines on stderr, for logs and pipes."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last = time.monotonic()

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= _LINE_SECONDS:
            self._last = now
            of = f" of {total:,}" if total else ""
            warn(f"{self._title}: {done:,}{of}")


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[ProgressBar]:
    """Show a progress bar that disappears at the end of the block; every ten seconds a line if stderr is no terminal."""
    if quiet:
        yield ProgressBar()
        return
    if not sys.stderr.isatty() or _plain():
        yield _Lines(title)
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    layout = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*layout, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(title, total=None)
        last = 0.0

        class _Drawn(ProgressBar):
            def update(self, done: int, total: int) -> None:
                nonlocal last
                now = time.monotonic()
                if now - last >= _REFRESH_SECONDS or 0 < done == total:
                    last = now
                    progress.update(task, completed=done, total=total or None)
                    progress.refresh()

        yield _Drawn()
