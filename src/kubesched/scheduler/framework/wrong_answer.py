"""Error for a plugin's answer that the interface does not allow, with the place of the method that gave it.

The plugin raised nothing, so no traceback leads to it. Reports name the method's definition instead.
"""

from __future__ import annotations

import inspect
from typing import Any

from .question import Question

__all__ = ["WrongAnswerError"]


class WrongAnswerError(TypeError):
    """A method of a plugin, or of its question, returned a value that the interface does not allow.

    Attributes:
        file, line: place of the method's definition; "" and 0 for a method without Python source.
    """

    def __init__(self, plugin: Any, method: str, problem: str) -> None:
        super().__init__(problem)
        asks = getattr(plugin, "asks", Question)
        asked = getattr(asks, method, None)
        own: Any = asked if asked is not getattr(Question, method, None) else getattr(plugin, method)
        function = inspect.unwrap(own)
        code = getattr(function, "__code__", None)
        self.file: str = "" if code is None else code.co_filename
        self.line: int = 0 if code is None else code.co_firstlineno
