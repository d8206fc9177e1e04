"""Comparable part of an error: the extension point and the plugin. The wording after them may differ."""

from __future__ import annotations

import re
from typing import Any, Final

from kubesched.scheduler.framework.status import Code

__all__ = ["failed_plugin", "without_wording"]

JSON = dict[str, Any]

#: Beginning of an error that names the extension point and the plugin.
_FAILED_PLUGIN: Final = re.compile(r'(?:preemption: )?running (?:[^":]+: )?(?:[^":]* )?"[^"]+"(?: filter plugin)?')


def failed_plugin(message: str) -> str:
    """Return the extension point and plugin that an error names; the whole text when it names none."""
    match = _FAILED_PLUGIN.match(message)
    return match.group() if match is not None else message


def without_wording(status: JSON) -> JSON:
    """Return a status of the golden format, its errors reduced to extension point and plugin."""
    if status.get("code") != Code.ERROR.label:
        return status
    return {**status, "reasons": [failed_plugin(text) for text in status["reasons"]]}
