"""Small controllers for the embedded cluster: as much life as scheduling behaviour needs.

Written against :class:`kubesched.api.wire.Transport`. :mod:`.manager` runs them, :mod:`.base` says what each one is,
:mod:`.context` what they share.
"""

from .base import Controller
from .context import ControllerSettings
from .manager import ALL, STORAGE, ControllerManager, ControllerStatistics

__all__ = ["ALL", "STORAGE", "Controller", "ControllerManager", "ControllerSettings", "ControllerStatistics"]
