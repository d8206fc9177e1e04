"""Ctrl-C ends the process without a word while :mod:`.interrupts` does not handle it: at the start and at the end.

The imports of this module are not protected, so there are almost none. Caller: :mod:`.first`.
"""

import os

try:
    import signal
except KeyboardInterrupt:
    raise SystemExit(130) from None

__all__ = ["be_quiet", "end_quietly"]


def end_quietly(number: int, frame: object) -> None:
    """End the process as interrupted. There is nothing to clean up, and no import may be left half done."""
    os._exit(130)


def be_quiet() -> None:
    """Make Ctrl-C quiet, unless it is ignored, as in the background, or the program handles it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_quietly)
