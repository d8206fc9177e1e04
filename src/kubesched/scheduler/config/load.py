"""Loader of a configuration: reads the text, applies defaults, validates.

The command line calls :func:`load_config_file`; tools with plain data call :func:`load_config_data`. The result goes
to ``profiles.expand_profile`` (by way of the framework) and to the assembly of the scheduler.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .decode import MAX_BYTES, decode_configuration
from .defaults import apply_defaults
from .errors import ConfigError
from .features import DEFAULT_GATES, FeatureGates
from .types import API_VERSION, KIND, KubeSchedulerConfiguration
from .validate import validate

__all__ = ["decode_config", "default_config", "load_config", "load_config_data", "load_config_file"]


def _load(
    source: str | bytes | dict[str, Any], name: str, gates: FeatureGates, check: bool
) -> KubeSchedulerConfiguration:
    try:
        decoded, given = decode_configuration(source)
        config = apply_defaults(decoded, given, gates)
        if check:
            validate(config, gates)
    except ConfigError as error:
        raise (error.with_source(name) if name else error) from None
    return config


def load_config(
    text: str | bytes, *, source: str = "", gates: FeatureGates = DEFAULT_GATES
) -> KubeSchedulerConfiguration:
    """Decode, complete and validate a configuration. ``source`` names the file in messages to the user.

    Raises:
        ConfigError: stage ``decode`` or ``validate``.
    """
    return _load(text, source, gates, check=True)


def decode_config(
    text: str | bytes, *, source: str = "", gates: FeatureGates = DEFAULT_GATES
) -> KubeSchedulerConfiguration:
    """Decode and complete a configuration without validating it, for callers that change it first.

    Raises:
        ConfigError: stage ``decode``.
    """
    return _load(text, source, gates, check=False)


def load_config_data(
    data: dict[str, Any], *, source: str = "", gates: FeatureGates = DEFAULT_GATES
) -> KubeSchedulerConfiguration:
    """Load a configuration as :func:`load_config`, from a document that has been parsed already.

    Raises:
        ConfigError: stage ``decode`` or ``validate``.
    """
    return _load(data, source, gates, check=True)


def read_config_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a configuration file, at most one more than the limit.

    Raises:
        ConfigError: stage ``decode``, with the operating system's reason in upstream's form.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        verb = "read" if isinstance(error, IsADirectoryError) else "open"
        raise ConfigError("decode", [f"{verb} {name}: {reason}"]) from None
    except ValueError:  # a NUL in the name
        raise ConfigError("decode", [f"open {name!r}: invalid argument"]) from None


def load_config_file(
    path: str | os.PathLike[str], *, gates: FeatureGates = DEFAULT_GATES
) -> KubeSchedulerConfiguration:
    """Load a configuration as :func:`load_config`, from a file.

    Raises:
        ConfigError: also when the file cannot be read.
    """
    return load_config(read_config_file(path), source=os.fspath(path), gates=gates)


def default_config(*, gates: FeatureGates = DEFAULT_GATES) -> KubeSchedulerConfiguration:
    """Return the configuration of a scheduler started without a file."""
    return load_config_data({"apiVersion": API_VERSION, "kind": KIND}, gates=gates)
