"""Registry of older Kubernetes: retired configuration versions, flags, feature gates and plugins.

The package :mod:`kubesched.retired` knows them. :func:`older` is the only access to that package. An installation whose
folder ``retired`` was deleted runs, and reads v1 only. Callers: the commands and the simulator.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Literal

from .features import DEFAULT_GATES, FeatureGates
from .load import load_config, load_config_data, read_config_file
from .types import KubeSchedulerConfiguration

__all__ = ["GetConfigMap", "LoadOptions", "Loaded", "Older", "RetiredFlag", "older"]

_PACKAGE: Final = "kubesched.retired"

#: Namespace and name to the ConfigMap's ``data``; raises when it cannot be read.
GetConfigMap = Callable[[str, str], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class RetiredFlag:
    """A flag that newer releases do not have.

    Attributes:
        name: name without the leading dashes.
        type: type of its value.
        default: the value when the flag is not given.
        removed_in: the first release without it; empty if it is only known that 1.19 had it.
        maps_to: the field of the configuration it sets, as a path; empty when it is ignored.
        message: the warning when it is set.
    """

    name: str
    type: Literal["string", "int", "bool"]
    default: str | int | bool
    removed_in: str
    maps_to: str
    message: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration ready to use.

    Attributes:
        config: completed and validated, in the form of v1.
        warnings: remarks on what was converted, replaced or ignored; each names the file.
        retired: the retired plugins that the configuration uses and its version had. :attr:`Older.plugins` has their
            classes; they have to be registered for this configuration, and for no other.
    """

    config: KubeSchedulerConfiguration
    warnings: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Circumstances of reading a configuration, besides its text.

    Attributes:
        source: the file's name in messages.
        gates: today's feature gates.
        retired_gates: settings of removed feature gates, which are the keys of :attr:`Older.gates`.
        unavailable: in-tree plugins that cannot be built; the default sets of older versions go without them,
            with a warning. (v1 does the same when its profiles are built.)
        keep_limits: True for a configuration that will be run, not written. The volume limits per cloud (EBSLimits, …)
            that an older file names stay then, although v1 refuses them. Otherwise NodeVolumeLimits replaces them.
    """

    source: str = ""
    gates: FeatureGates = DEFAULT_GATES
    retired_gates: Mapping[str, bool] | None = None
    unavailable: Collection[str] = ()
    keep_limits: bool = False


_DEFAULTS: Final = LoadOptions()


class Older:
    """Interface to older Kubernetes.

    This class knows no older version; the subclass in :mod:`kubesched.retired` does.

    Attributes:
        flags: retired flags, in alphabetical order.
        gates: retired feature gate to the warning about it.
    """

    flags: ClassVar[tuple[RetiredFlag, ...]] = ()
    gates: ClassVar[Mapping[str, str]] = {}

    @property
    def plugins(self) -> Mapping[str, type]:
        """Retired plugins, by name."""
        return {}

    def load(self, source: str | bytes | dict[str, Any], options: LoadOptions) -> Loaded:
        """Load a configuration of any known version, from its text or its plain data.

        Raises:
            ConfigError: when it cannot be used.
        """
        name, gates = options.source, options.gates
        if isinstance(source, dict):
            return Loaded(load_config_data(source, source=name, gates=gates))
        return Loaded(load_config(source, source=name, gates=gates))

    def load_file(self, path: str | os.PathLike[str], options: LoadOptions = _DEFAULTS) -> Loaded:
        """Load a configuration as :meth:`load`, from a file.

        Raises:
            ConfigError: also when the file cannot be read.
        """
        return self.load(read_config_file(path), replace(options, source=os.fspath(path)))

    async def load_with_api(
        self, source: str | bytes | dict[str, Any], get_config_map: GetConfigMap, options: LoadOptions
    ) -> Loaded:
        """Load a configuration as :meth:`load`, with an API server from which to read a Policy's ConfigMap.

        Raises:
            ConfigError: when it cannot be used.
        """
        return self.load(source, options)

    def document_from_flags(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the configuration document for retired flags (name to value); None when they ask for nothing.

        Raises:
            ConfigError: for values that contradict each other or are out of range.
        """
        return None

    def flag_warnings(self, given: Mapping[str, Any]) -> list[str]:
        """Return warnings about the retired flags that were set, in the order of :attr:`flags`."""
        return []


@cache
def older() -> Older:
    """Return the interface to older Kubernetes; without the package :mod:`kubesched.retired` it knows no version."""
    if find_spec(_PACKAGE) is None:
        return Older()
    known: Older = import_module(_PACKAGE).OLDER
    return known
