"""The way in: Ctrl-C is quiet before anything else is imported, and there is somewhere to write to. Next is :mod:`.main`."""

import os
import sys

from .quiet import be_quiet

__all__ = ["main"]


def main() -> int:
    """:func:`kubesched.cli.main.main` as a program of its own."""
    be_quiet()
    _open_streams()
    from .main import main as run  # noqa: PLC0415 - the rest of the program

    try:
        return run()
    finally:
        be_quiet()  # an event loop that is closed sets what Python has by default


def _open_streams() -> None:
    """Streams that take every text: closed ones lead nowhere, and all write UTF-8, as the documents that are printed are.

    A closed one must not stay free: the next file that is opened would become the standard output.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            while os.open(os.devnull, os.O_RDWR) < descriptor:
                pass
            stream = open(descriptor, "w" if descriptor else "r", encoding="utf-8")  # noqa: SIM115, PTH123 - it stays open
            setattr(sys, name, stream)
        if descriptor:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
