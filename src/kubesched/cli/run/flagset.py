"""Parser of a command line as kube-scheduler reads it: a table of flags, upstream's error texts, the help page.

Underscores in names count as hyphens. A flag is ``--name value`` or ``--name=value``, a bool only with ``=``.
Source: rules/configuration §7.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from .values import ValueType, quote

__all__ = ["Flag", "FlagError", "FlagSet", "Flags"]

_WIDTH: Final = 100
_INDENT: Final = 16


class FlagError(Exception):
    """The command line cannot be read. ``with_usage`` is true if kube-scheduler prints its usage line, too."""

    def __init__(self, message: str, *, with_usage: bool = True) -> None:
        super().__init__(message)
        self.with_usage = with_usage


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. ``about`` is its help text, ``short`` a letter that may be used in place of the name."""

    group: str
    name: str
    type: ValueType
    default: Any
    about: str
    short: str = ""
    #: Value of the flag, as text, if no value follows; it replaces the value that the type has for this case.
    bare: str = ""
    deprecated: bool = False

    @property
    def alone(self) -> str:
        """Value of the flag, as text, if no value follows; empty if the flag needs a value."""
        return self.bare or self.type.bare

    @property
    def title(self) -> str:
        """Name of the flag in messages."""
        return f"-{self.short}, --{self.name}" if self.short else f"--{self.name}"


@dataclass(frozen=True, slots=True)
class Flags:
    """Values of all flags by name, and the names of those that the command line sets."""

    values: Mapping[str, Any]
    changed: frozenset[str]
    table: tuple[Flag, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def texts(self) -> dict[str, str]:
        """Return every flag with its value in effect as text, sorted by name, for ``/flagz``."""
        return {flag.name: flag.type.write(self.values[flag.name]) for flag in sorted(self.table, key=_name)}


def _name(flag: Flag) -> str:
    return flag.name


class FlagSet:
    """Flags of a command."""

    def __init__(self, command: str, about: str, flags: Iterable[Flag]) -> None:
        """``command`` is the name that people type."""
        self.command = command
        self.about = about
        self.flags = tuple(flags)
        self._by_name = {flag.name: flag for flag in self.flags}
        self._by_letter = {flag.short: flag for flag in self.flags if flag.short}

    # -- reading ---------------------------------------------------------------------------------------

    def parse(self, arguments: Sequence[str]) -> Flags:
        """Parse a command line.

        Raises:
            FlagError: with upstream's text, if it cannot be read.
        """
        values = {flag.name: flag.default for flag in self.flags}
        changed: set[str] = set()
        positional: list[str] = []
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            if argument == "--":
                positional += rest
                break
            if argument.startswith("--"):
                flag, text = self._long(argument, rest)
            elif len(argument) > 1 and argument[0] == "-":
                flag, text = self._short(argument, rest)
            else:
                positional.append(argument)
                continue
            self._set(flag, text, values, changed)
            if flag.name == "help" and values["help"]:
                return Flags(MappingProxyType(values), frozenset(changed), self.flags)
        if positional:
            listed = " ".join(map(quote, positional))
            raise FlagError(f'"{self.command}" does not take any arguments, got [{listed}]', with_usage=False)
        return Flags(MappingProxyType(values), frozenset(changed), self.flags)

    def _long(self, argument: str, rest: list[str]) -> tuple[Flag, str]:
        name, equals, text = argument[2:].partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {argument}")
        flag = self._by_name.get(name.replace("_", "-"))
        if flag is None:
            raise FlagError(f"unknown flag: --{name}")
        if equals:
            return flag, text
        if flag.alone:
            return flag, flag.alone
        if not rest:
            raise FlagError(f"flag needs an argument: --{name}")
        return flag, rest.pop(0)

    def _short(self, argument: str, rest: list[str]) -> tuple[Flag, str]:
        letter, text = argument[1], argument[2:]
        flag = self._by_letter.get(letter)
        if flag is None:
            raise FlagError(f"unknown shorthand flag: {letter!r} in {argument}")
        if text.startswith("="):
            return flag, text[1:]
        if flag.alone:
            if text:
                rest.insert(0, f"-{text}")
            return flag, flag.alone
        if text:
            return flag, text
        if not rest:
            raise FlagError(f"flag needs an argument: {letter!r} in {argument}")
        return flag, rest.pop(0)

    @staticmethod
    def _set(flag: Flag, text: str, values: dict[str, Any], changed: set[str]) -> None:
        is_first = flag.name not in changed
        empty: Any = {} if isinstance(flag.default, dict) else ()
        before = empty if flag.type.repeats and is_first else values[flag.name]
        try:
            values[flag.name] = flag.type.read(text, before)
        except ValueError as error:
            raise FlagError(f'invalid argument {quote(text)} for "{flag.title}" flag: {error}') from None
        changed.add(flag.name)

    # -- help ------------------------------------------------------------------------------------------

    @property
    def usage(self) -> str:
        return f"Usage:\n  {self.command} [flags]\n"

    def help(self) -> str:
        """Return the help page: groups in their order, flags by name within a group."""
        lines = [textwrap.fill(self.about, _WIDTH), "", self.usage]
        for group in dict.fromkeys(flag.group for flag in self.flags):
            lines.append(f"{group} flags:\n")
            flags = sorted((flag for flag in self.flags if flag.group == group), key=_name)
            for flag in flags:
                lines += [self._head(flag), *_wrapped(_described(flag))]
            lines.append("")
        return "\n".join(lines)

    @staticmethod
    def _head(flag: Flag) -> str:
        start = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
        kind = flag.type.name
        if flag.alone and flag.type.name:
            return f"{start} {kind}[={flag.alone}]"
        return f"{start} {kind}".rstrip()


def _described(flag: Flag) -> str:
    text = f"DEPRECATED: {flag.about}" if flag.deprecated else flag.about
    default = flag.type.write(flag.default)
    if default in ("", "[]", "false", "0s") or flag.name in ("help", "version"):
        return text
    return f"{text} (default {quote(default) if flag.type.name == 'string' else default})"


def _wrapped(text: str) -> list[str]:
    indent = " " * _INDENT
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
