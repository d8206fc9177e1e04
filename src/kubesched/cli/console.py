"""What commands print with: styled lines on stdout, progress bars on stderr.

Colour only on a terminal (rich decides, ``NO_COLOR`` included); a progress bar only when stderr is a terminal and
``--quiet`` was not given. Results always go to stdout, everything else to stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubesched.simulate.report import Line

__all__ = ["ProgressBar", "print_lines", "progress_bar", "terminal_width", "warn", "write", "write_json"]

_STYLES: Final = {"": "", "title": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "red"}
_REFRESH_SECONDS: Final = 0.1


def write(text: str) -> None:
    """Text as it is, to stdout."""
    sys.stdout.write(text)


def write_json(data: Any) -> None:
    """A document as indented JSON, to stdout."""
    import msgspec  # noqa: PLC0415 - only for a document

    write(msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")


def warn(text: str) -> None:
    """A remark, to stderr."""
    print(f"kubesched: {text}", file=sys.stderr)


def terminal_width() -> int | None:
    """How many characters a line on stdout holds; None when it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_lines(lines: Iterable[Line]) -> None:
    """Styled lines to stdout; plain, uncut text when it is not a terminal."""
    if not sys.stdout.isatty():
        write("".join(f"{line.text}\n" for line in lines))
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line.text, style=_STYLES[line.style]))


class ProgressBar:
    """Receives the progress of the work, at any rate. Draws only then: no threads."""

    def update(self, done: int, total: int) -> None:
        """``total`` 0 means unknown."""


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[ProgressBar]:
    """A bar that disappears when the work is over; does nothing unless stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield ProgressBar()
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
                if now - last >= _REFRESH_SECONDS or done == total:
                    last = now
                    progress.update(task, completed=done, total=total or None)
                    progress.refresh()

        yield _Drawn()
