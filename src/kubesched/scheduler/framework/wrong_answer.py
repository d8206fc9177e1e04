"""An answer of a plugin that the interface does not allow, with the place of the method that gave it.

Nothing was raised inside the plugin, so no traceback leads to it: reports name the method's definition instead.
"""

from __future__ import annotations

import inspect
from typing import Any

from .question import Question

__all__ = ["WrongAnswerError"]


class WrongAnswerError(TypeError):
    """A method of a plugin, or of its question, returned what it must not.

    Attributes:
        file, line: where the method is defined; empty and 0 for one without Python source.
    """

    def __init__(self, plugin: Any, method: str, problem: str) -> None:
        super().__init__(problem)
        asks = getattr(plugin, "asks", Question)
        asked = getattr(asks, method, None)
        own = asked if asked is not getattr(Question, method, None) else getattr(plugin, method, None)
        function = inspect.unwrap(own or plugin)
        code = getattr(function, "__code__", None)
        self.file: str = "" if code is None else code.co_filename
        self.line: int = 0 if code is None else code.co_firstlineno
