"""Small controllers for the embedded cluster: as much life as scheduling behaviour needs.

Written against :class:`kubesched.api.wire.Transport`. :mod:`.manager` runs them, :mod:`.base` says what each one is,
:mod:`.context` what they share.
"""

from .context import ControllerSettings
from .manager import ALL, ControllerManager, ControllerStatistics

__all__ = ["ALL", "ControllerManager", "ControllerSettings", "ControllerStatistics"]
