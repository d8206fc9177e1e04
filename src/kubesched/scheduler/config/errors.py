"""Errors of a configuration, in upstream's words and in plain ones.

Every module of this package raises them. ``kubesched run`` prints :attr:`ConfigError.user_message`, other commands
print :attr:`ConfigError.plain_message`; the exit status is 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

__all__ = ["MAX_DETAILS", "ArgsTypeError", "ConfigError", "Stage", "join_errors"]

#: Most explanations shown with an error.
MAX_DETAILS: Final = 20

Stage = Literal["decode", "validate", "framework"]


_WRONG_TYPE: Final = "a value has the wrong type"
#: Pairs of a pattern of Go's texts and plain words for it.
_GO: Final = (
    (re.compile(r"json: cannot unmarshal .*", re.DOTALL), _WRONG_TYPE),
    (re.compile(r"couldn't get version/kind; json parse error: .*", re.DOTALL), "the file is no mapping of fields"),
    (re.compile(r"Object 'Kind' is missing in .*", re.DOTALL), "the field kind is missing"),
    (
        re.compile(r'no kind "(.*?)" is registered for version "(.*?)" in scheme ".*?"'),
        r"there is no apiVersion \2 with kind \1",
    ),
    (re.compile(r"schedulerName: Duplicate value: \{\}"), "schedulerName: another profile has the same name"),
    (re.compile(r'Duplicate value: ""'), 'Duplicate value: "": two entries have no name'),
    (re.compile(r"[a-z][a-z ]*plugins: total score of Score plugins could overflow"), "a weight cannot be used"),
    (re.compile(r'\w+Plugin "" does not exist'), "a plugin has no name"),
    (re.compile(r"yaml: unmarshal errors:\n *"), ""),
)


def _without_go(text: str) -> str:
    for pattern, words in _GO:
        text = pattern.sub(words, text)
    return text


def join_errors(errors: Iterable[str]) -> str:
    """Join error texts as upstream prints them: one bare, several as ``[e1, e2]``, equal ones once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


class ArgsTypeError(TypeError):
    """A plugin was given the arguments of another plugin."""

    def __init__(self, wanted: type, args: object) -> None:
        super().__init__(f"want args to be of type {wanted.__name__}, got {type(args).__name__}")


class ConfigError(ValueError):
    """A configuration cannot be used.

    ``str(error)`` is upstream's text (rules/configuration §6). ``stage`` is the step that failed: reading the document
    (``decode``), checking its values (``validate``) or building the profiles (``framework``). ``errors`` holds the
    single texts. ``details`` explains where to look and what would be right. ``source`` is the file's name, empty for
    a text from elsewhere.
    """

    def __init__(self, stage: Stage, errors: Iterable[str], *, details: Iterable[str] = (), source: str = "") -> None:
        self.stage: Stage = stage
        self.errors = list(dict.fromkeys(errors))
        self.details = list(dict.fromkeys(details))
        self.source = source
        super().__init__(join_errors(self.errors))

    @property
    def user_message(self) -> str:
        """Text for a person: the file's name, upstream's text, then one indented line per detail.

        Control characters, which a file may carry, are escaped so that they cannot play with the terminal.
        """
        return self._message([str(self)])

    @property
    def plain_message(self) -> str:
        """Text as :attr:`user_message`, but without upstream's Go types, struct fields and source files.

        If a detail names a field with a wrong type, the text that only says so is left out.
        """
        plain = [_without_go(text) for text in self.errors]
        said = [text for text in plain if not (self.details and text.endswith(_WRONG_TYPE))]
        return self._message([join_errors(said)] if said else [])

    def _message(self, lines: list[str]) -> str:
        first, *more = [*lines, *self.details[:MAX_DETAILS]]
        text = "\n  ".join([f"{self.source}: {first}" if self.source else first, *more])
        return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)

    def with_source(self, source: str) -> ConfigError:
        """Return a copy of the error for the file ``source``."""
        return ConfigError(self.stage, self.errors, details=self.details, source=source)
