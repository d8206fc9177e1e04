"""What is wrong with a configuration, in upstream's words and in plain ones.

Raised by every module of this package; the command line prints :attr:`ConfigError.user_message` and exits
with status 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

__all__ = ["MAX_DETAILS", "ArgsTypeError", "ConfigError", "Stage", "join_errors"]

#: The most explanations shown with an error.
MAX_DETAILS: Final = 20

Stage = Literal["decode", "validate", "framework"]


def join_errors(errors: Iterable[str]) -> str:
    """Several error texts as upstream prints them: one bare, several as ``[e1, e2]``, equal ones once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


class ArgsTypeError(TypeError):
    """A plugin's arguments are those of another plugin."""

    def __init__(self, wanted: type, args: object) -> None:
        super().__init__(f"want args to be of type {wanted.__name__}, got {type(args).__name__}")


class ConfigError(ValueError):
    """A configuration that cannot be used.

    ``str(error)`` is upstream's text (spec "Configuration file and command line", section 6). ``stage`` is
    where it failed: reading the document (``decode``), checking its values (``validate``) or building the
    profiles (``framework``). ``errors`` holds the single texts. ``details`` explains where to look
    and what would be right; ``source`` is the file's name, empty for a text that came from elsewhere.
    """

    def __init__(self, stage: Stage, errors: Iterable[str], *, details: Iterable[str] = (), source: str = "") -> None:
        self.stage: Stage = stage
        self.errors = list(dict.fromkeys(errors))
        self.details = list(dict.fromkeys(details))
        self.source = source
        super().__init__(join_errors(self.errors))

    @property
    def user_message(self) -> str:
        """The text for a person: the file's name, upstream's text, then one indented line per detail.

        Control characters, which a file may carry, are escaped so that they cannot play with the terminal.
        """
        head = f"{self.source}: {self}" if self.source else str(self)
        lines = "\n  ".join([head, *self.details[:MAX_DETAILS]])
        return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in lines)

    def with_source(self, source: str) -> ConfigError:
        """The same error for the file ``source``."""
        return ConfigError(self.stage, self.errors, details=self.details, source=source)
