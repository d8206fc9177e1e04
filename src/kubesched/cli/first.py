"""Entry point: makes Ctrl-C quiet before anything else is imported, and opens missing streams. Next is :mod:`.main`."""

import gc
import os
import sys

from .quiet import be_quiet

__all__ = ["main"]

#: New objects, minus freed ones, that start a pass of the collector. Python's own 700 make 200 passes over modules while
#: they are imported: a tenth of the CPU time until a scheduler is ready, which has 130,000 objects then, and keeps them.
_NEW_OBJECTS = 200_000


def main() -> int:
    """Run :func:`kubesched.cli.main.main` as a program."""
    be_quiet()
    _open_streams()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    from .main import main as run  # noqa: PLC0415 - the rest of the program

    try:
        return run()
    finally:
        be_quiet()  # a closed event loop restores Python's default handler
        gc.freeze()  # the interpreter would look for cycles among all objects before it ends


def _open_streams() -> None:
    """Make the standard streams accept every text: output is UTF-8, and a closed stream is replaced by one that drops
    its text.

    The descriptor of a closed stream must not stay free: the next file to be opened would become the standard output.
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
