"""First lists of the informers: those that do not come, why, and the plugins that want them.

Caller: :class:`.scheduler.Scheduler`, which schedules nothing before each informer has its first list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError

from .core.port import Port
from .informers import Informers, kind_of_event, kinds_informed
from .queue.queueing_hints import Registrations

__all__ = ["FirstLists"]

_log = logging.getLogger("kubesched.scheduler")

#: Seconds until the lists that have not come are logged for the first time, and between later times.
_PATIENCE: Final = 10.0
_REMIND: Final = 300.0
_ADVICE: Final = "disable these plugins in every profile, or the feature gates that make them want it"


class FirstLists:
    """First lists of a scheduler's informers. ``plugins`` and ``hints`` are those of all its profiles."""

    def __init__(self, informers: Informers, port: Port, plugins: Iterable[Any], hints: Registrations) -> None:
        self._informers = informers
        self._port = port
        self._plugins = plugins
        self._hints = hints

    def missing(self) -> list[str]:
        """Return the kinds of which the first list has not come, as ``poddisruptionbudgets.policy``."""
        return [kind.group_resource for kind in self._missing()]

    async def tell(self) -> None:
        """Log from time to time which lists have not come, until cancelled."""
        delay = _PATIENCE
        while True:
            await asyncio.sleep(delay)
            delay = _REMIND
            wanted = self._wanted()
            for kind in self._missing():
                _log.warning(
                    "No pod is scheduled yet: the first list of %s has not come. %s",
                    kind.group_resource,
                    await self._reason(kind, wanted.get(kind, ())),
                )

    def _missing(self) -> list[Kind]:
        return [informer.kind for informer in self._informers.values() if not informer.has_synced]

    def _wanted(self) -> Mapping[Kind, Iterable[str]]:
        """Return the names of the plugins that look a kind up or wait for its changes, by kind."""
        pairs = [(kind, plugin.name) for plugin in self._plugins for kind in kinds_informed(plugin)]
        for events in self._hints.values():
            for event, hints in events.items():
                if (kind := kind_of_event(event.resource)) is not None:
                    pairs += [(kind, plugin) for plugin, _ in hints]
        found: dict[Kind, dict[str, None]] = {}
        for kind, plugin in pairs:
            found.setdefault(kind, {})[plugin] = None
        return found

    async def _reason(self, kind: Kind, plugins: Iterable[str]) -> str:
        try:
            if await self._port.is_served(kind):
                return "It is still being read"
        except ApiError as error:
            return f"The API server refuses it: {error}"
        except OSError as error:
            return f"The API server cannot be asked: {error or repr(error)}"
        names = ", ".join(plugins)
        advice = f". Wanted by {names}: without the API, {_ADVICE}" if names else ""
        return f"The API server does not serve {kind.api_version} {kind.plural}{advice}"
