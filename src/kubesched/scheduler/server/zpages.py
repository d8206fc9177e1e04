"""Pages ``/flagz`` and ``/statusz``: text for people, and a structured form by its exact media type.

Caller: :mod:`.endpoints`. Source: rules/serving §4.
"""

from __future__ import annotations

import enum
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from kubesched.base.times import timestamp

__all__ = [
    "ACCEPTED",
    "Form",
    "StatusInfo",
    "flagz_object",
    "flagz_text",
    "negotiate",
    "statusz_object",
    "statusz_text",
]

COMPONENT: Final = "kube-scheduler"
ACCEPTED: Final = "application/json, application/yaml, text/plain"
_GROUP: Final = "config.k8s.io"
_VERSIONS: Final = ("v1beta1", "v1alpha1")
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)
_DELIMITERS: Final = (":", ": ", "=", " ")


class Format(enum.Enum):
    TEXT = "text/plain"
    JSON = "application/json"
    YAML = "application/yaml"


@dataclass(frozen=True, slots=True)
class Form:
    """Form of an answer: its format, and the version of a structured one."""

    format: Format
    version: str = ""

    @property
    def is_deprecated(self) -> bool:
        return self.version == "v1alpha1"


def negotiate(accept: str, kind: str) -> Form | None:
    """Choose the form for an Accept header; ``kind`` is Flagz or Statusz. None when nothing in it can be served."""
    if not accept.strip():
        return Form(Format.TEXT)
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        given = dict(item.partition("=")[::2] for item in parameters)
        if media.lower() in ("*/*", "text/*", "text/plain"):
            return Form(Format.TEXT)
        if media.lower() in (Format.JSON.value, Format.YAML.value):
            version = given.get("v", "")
            if version in _VERSIONS and given.get("g") == _GROUP and given.get("as") == kind:
                return Form(Format(media.lower()), version)
    return None


def deprecation(kind: str) -> str:
    """Text of the warning for an old version of a page."""
    return f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."


# -- flagz -----------------------------------------------------------------------------------------------


def flagz_text(flags: Mapping[str, str], rng: Random) -> str:
    """List every flag with its value, by name.

    Each request gets a random delimiter, as upstream, so that programs do not parse the text.
    """
    delimiter = rng.choice(_DELIMITERS)
    lines = [f"{name}{delimiter}{flags[name]}" for name in sorted(flags)]
    return "\n".join(["", f"{COMPONENT} flagz", _WARNING, *lines, ""])


def flagz_object(flags: Mapping[str, str], version: str) -> dict[str, Any]:
    return {**_head("Flagz", version), "flags": {name: flags[name] for name in sorted(flags)}}


# -- statusz ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusInfo:
    """Content of ``/statusz``: start (seconds since the epoch), versions, and the paths that are served."""

    started: float
    binary_version: str
    emulation_version: str
    paths: Sequence[str]
    #: The interpreter is shown in place of Go's version.
    go_version: str = f"none (Python {platform.python_version()})"


def statusz_text(info: StatusInfo, now: float, rng: Random) -> str:
    up = max(0, int(now - info.started))
    items = {
        "Started": datetime.fromtimestamp(info.started, UTC).strftime("%a %b %e %H:%M:%S UTC %Y"),
        "Up": f"{up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
        "Go version": info.go_version,
        "Binary version": info.binary_version,
        "Emulation version": info.emulation_version,
        "Paths": " ".join(info.paths),
    }
    delimiter = rng.choice(_DELIMITERS)
    lines = [f"{name}{delimiter} {value}" for name, value in items.items()]
    return "\n".join(["", f"{COMPONENT} statusz", _WARNING, "", *lines, ""])


def statusz_object(info: StatusInfo, now: float, version: str) -> dict[str, Any]:
    return {
        **_head("Statusz", version),
        "startTime": timestamp(info.started),
        "uptimeSeconds": max(0, int(now - info.started)),
        "goVersion": info.go_version,
        "binaryVersion": info.binary_version,
        "emulationVersion": info.emulation_version,
        "paths": list(info.paths),
    }


def _head(kind: str, version: str) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": f"{_GROUP}/{version}", "metadata": {"name": COMPONENT}}
