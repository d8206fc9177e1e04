"""Retired parts of Kubernetes: configuration versions, flags, feature gates and plugins that 1.36 no longer has.

No other package imports this one: :func:`kubesched.scheduler.config.older.older` finds it by name. Deleting this folder
deletes the feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kubesched.scheduler.config.older import GetConfigMap, Loaded, LoadOptions, Older, RetiredFlag

from .flags import RETIRED_FLAGS, RETIRED_GATES, document_from_flags, flag_warnings

__all__ = ["OLDER"]


class _Retired(Older):
    flags: ClassVar[tuple[RetiredFlag, ...]] = RETIRED_FLAGS
    gates: ClassVar[Mapping[str, str]] = RETIRED_GATES

    @property
    def plugins(self) -> Mapping[str, type]:
        from .plugins import RETIRED  # noqa: PLC0415 - commands without a scheduler need no plugins

        return RETIRED

    def load(self, source: str | bytes | dict[str, Any], options: LoadOptions) -> Loaded:
        from .config.load import load_any  # noqa: PLC0415 - a scheduler with the default configuration converts nothing

        return load_any(source, options)

    async def load_with_api(
        self, source: str | bytes | dict[str, Any], get_config_map: GetConfigMap, options: LoadOptions
    ) -> Loaded:
        from .config.load import load_any_with_api  # noqa: PLC0415 - as above

        return await load_any_with_api(source, get_config_map, options)

    def document_from_flags(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        return document_from_flags(given)

    def flag_warnings(self, given: Mapping[str, Any]) -> list[str]:
        return flag_warnings(given)


OLDER = _Retired()
