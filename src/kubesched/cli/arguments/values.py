"""Parsers of the values of options: numbers, durations and pairs. An error of theirs is reported by argparse."""

from __future__ import annotations

import argparse
import math
import re
from typing import Final

from kubesched.base.hosts import loopback_listener
from kubesched.base.times import parse_duration, parse_time

__all__ = [
    "TABLES",
    "count",
    "duration",
    "factor",
    "label",
    "moment",
    "node_count",
    "port",
    "positive",
    "saved_table",
    "seconds",
    "setting",
    "share",
    "speed",
    "ui_address",
    "zones",
]


def count(text: str) -> int:
    """Parse a whole number, 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {value}")
    return value


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
#: Most hollow nodes that may be asked for; more do not fit into the memory of a machine.
_MOST_NODES: Final = 1_000_000


def node_count(text: str) -> int:
    """Parse a number of nodes that a machine can hold."""
    value = count(text)
    if value > _MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST_NODES}: {value}")
    return value


def label(text: str) -> str:
    """Parse a DNS label that leaves room for a number behind it."""
    if not _LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be 1 to 40 lower-case letters, digits and inner hyphens: {text!r}")
    return text


def positive(text: str) -> int:
    """Parse a whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {value}")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a number of seconds that is not negative: {text}")
    return value


def duration(text: str) -> float:
    """Parse a number of seconds or a duration, to seconds."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_duration(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a duration that is not negative, such as 90m: {text}")
    return value


def moment(text: str) -> float:
    """Parse a time, to epoch seconds; or a duration, to the negative number of seconds."""
    try:
        return -parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"must be a time such as 2026-01-31T12:00:00Z, or 10m: {text}") from None


#: Tables of a result that can be saved to a file.
TABLES: Final = ("pods", "nodes", "resources", "series", "pending", "groups", "preemptions", "events", "node_groups")


def saved_table(text: str) -> tuple[str, str]:
    """Parse TABLE=FILE."""
    name, equals, file = text.partition("=")
    if not equals or not file or name not in TABLES:
        raise argparse.ArgumentTypeError(f"must be TABLE=FILE, where TABLE is one of {', '.join(TABLES)}: {text!r}")
    return name, file


def zones(text: str) -> int:
    """Parse a number of zones, at most 26: each is named by a letter."""
    value = count(text)
    if value > 26:
        raise argparse.ArgumentTypeError(f"must be at most 26: {value}")
    return value


def port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"must be between 0 and 65535: {value}")
    return value


def speed(text: str) -> float:
    """Parse a factor of time. It is bounded: a greater factor would take the clock beyond the year 9999 in a day."""
    value = float(text)
    if not 0.001 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be a number from 0.001 to 1000000: {text}")
    return value


def factor(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1_000:
        raise argparse.ArgumentTypeError(f"must be a number above 0, and at most 1000: {text}")
    return value


def setting(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. The caller checks the value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE: {text!r}")
    return name, value


def share(text: str) -> tuple[str, int]:
    """Parse NAME=N, where N is a whole number, 1 or more."""
    name, value = setting(text)
    try:
        return name, positive(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be NAME=N, where N is a whole number: {text!r}") from None


count.__name__ = node_count.__name__ = positive.__name__ = zones.__name__ = port.__name__ = "whole number"
seconds.__name__ = speed.__name__ = factor.__name__ = "number"
duration.__name__ = "duration"


def ui_address(text: str) -> tuple[str, int]:
    """Parse the address of the dashboard's listener, ``PORT`` or ``ADDRESS:PORT``; an empty text is the default.

    Raises:
        ArgumentTypeError: for anything else, and for an address that is not loopback.
    """
    try:
        return loopback_listener(text, "127.0.0.1", 10260)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
