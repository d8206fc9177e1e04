"""What of an error is part of a recorded answer: the extension point and the plugin; the wording after that is not."""

from __future__ import annotations

import re
from typing import Any, Final

from kubesched.scheduler.framework.status import Code

__all__ = ["failed_plugin", "without_wording"]

JSON = dict[str, Any]

#: The part of an error that names the extension point and the plugin.
_FAILED_PLUGIN: Final = re.compile(r'(?:preemption: )?running (?:[^":]+: )?(?:[^":]* )?"[^"]+"(?: filter plugin)?')


def failed_plugin(message: str) -> str:
    """The extension point and plugin that an error names; all of it when it names none."""
    match = _FAILED_PLUGIN.match(message)
    return match.group() if match is not None else message


def without_wording(status: JSON) -> JSON:
    """A status of the golden format, or anything without a code; of an error the extension point and the plugin only."""
    if status.get("code") != Code.ERROR.label:
        return status
    return {**status, "reasons": [failed_plugin(text) for text in status["reasons"]]}
