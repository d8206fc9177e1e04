"""Failures of plugins: the exception that carries one, its text in upstream's words, and calls that raise it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .status import Status

__all__ = ["PluginFailedError", "called", "failed", "shape_of"]


class PluginFailedError(Exception):
    """A plugin raised, or gave an answer that is not allowed.

    The attempt fails with code Error and the plugin's name.
    """

    def __init__(self, plugin: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.plugin = plugin
        self.error = error

    @classmethod
    def of(cls, status: Status) -> PluginFailedError:
        """Make the exception for a status other than success, at a point where the attempt needs success."""
        return cls(status.plugin, status.as_error() or RuntimeError(status.message()))


def failed(prefix: str, plugin: str, error: BaseException | None) -> RuntimeError:
    """Make an error in upstream's words: ``running PreFilter plugin "X": what happened``. Its cause is ``error``."""
    text = str(error) or type(error).__name__
    place = prefix.format(_quoted(plugin)) if "{}" in prefix else f"{prefix} {_quoted(plugin)}"
    found = RuntimeError(f"{place}: {text}")
    found.__cause__ = error
    return found


def called(prefix: str, plugin: str, method: Callable[..., Any], *args: Any) -> Any:
    """Call a plugin's method and return its answer. For ``prefix`` see :func:`failed`.

    Raises:
        PluginFailedError: when the method raises.
    """
    try:
        return method(*args)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginFailedError(plugin, failed(prefix, plugin, error)) from error


def _quoted(name: str) -> str:
    return f'"{name}"'


def shape_of(answer: Any) -> str:
    """Describe a plugin's answer in a message: dtype and shape of an array, the repr of anything else."""
    if isinstance(answer, np.ndarray):
        return f"{answer.dtype}{list(answer.shape)}"
    return repr(answer)
