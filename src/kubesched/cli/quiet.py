"""Ctrl-C ends the process without a word, until :mod:`.interrupts` handles it: while it is imported, and when it is about to end.

What this imports is imported without protection, so it is next to nothing. Caller: :mod:`.first`.
"""

import os

try:
    import signal
except KeyboardInterrupt:
    raise SystemExit(130) from None

__all__ = ["be_quiet", "end_quietly"]


def end_quietly(number: int, frame: object) -> None:
    """End the process as one that was interrupted. There is nothing to clean up, and an import must not be left half done."""
    os._exit(130)


def be_quiet() -> None:
    """From now on Ctrl-C is quiet, unless it is ignored, as in the background, or the program handles it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_quietly)
