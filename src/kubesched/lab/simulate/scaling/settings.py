"""Settings of the autoscaler, with the names, meanings and defaults of cluster-autoscaler's flags.

Read from ``--autoscaler NAME=VALUE`` and from the argument ``autoscaler`` of ``kubesched.simulate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from kubesched.base.times import parse_duration

from .expanders import EXPANDERS

__all__ = ["AutoscalerSettings", "settings_of"]

#: Longest time of a setting, in seconds.
_LONGEST: Final = 366 * 86_400.0


class AutoscalerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Settings of the autoscaler; a name with ``-`` is the flag of cluster-autoscaler. Times are seconds.

    Attributes:
        expander: names of expanders, the first that decides; what they leave equal is chosen at random.
        scan_interval: time between two looks at the cluster.
        scale_down_enabled: False keeps all nodes.
        scale_down_utilization_threshold: a node may go when less than this part of its cpu and memory is requested.
        scale_down_unneeded_time: time for which it must have been so.
        scale_down_delay_after_add: time after an order of nodes in which none goes.
        skip_nodes_with_local_storage: True keeps nodes of pods with hostPath, or with emptyDir on disk.
        skip_nodes_with_system_pods: True keeps nodes of pods of kube-system that no budget is about.
        expendable_pods_priority_cutoff: pods of lower priority are expendable, and get no nodes.
    """

    expander: tuple[str, ...] = ("random",)
    scan_interval: float = 10.0
    scale_down_enabled: bool = True
    scale_down_utilization_threshold: float = 0.5
    scale_down_unneeded_time: float = 600.0
    scale_down_delay_after_add: float = 600.0
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_system_pods: bool = True
    expendable_pods_priority_cutoff: int = -10


def _expanders(value: Any) -> tuple[str, ...]:
    names = tuple(value.split(",")) if isinstance(value, str) else tuple(value)
    if not names or len(set(names)) < len(names) or not set(names) <= set(EXPANDERS):
        raise ValueError
    return names


def _seconds(value: Any) -> float:
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    if isinstance(value, bool) or not 0 <= seconds <= _LONGEST:
        raise ValueError
    return seconds


def _interval(value: Any) -> float:
    seconds = _seconds(value)
    if seconds < 1:
        raise ValueError
    return seconds


def _share(value: Any) -> float:
    share = float(value)
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise ValueError
    return share


def _truth(value: Any) -> bool:
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ValueError
    return value


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


_TIME: Final = "seconds, or a duration such as 90s or 10m"
#: Reader of each setting, and the form that is right.
_READERS: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "expander": (_expanders, f"names without repetition, separated by commas, of {', '.join(EXPANDERS)}"),
    "scan_interval": (_interval, f"{_TIME}, 1 s or more"),
    "scale_down_enabled": (_truth, "true or false"),
    "scale_down_utilization_threshold": (_share, "a number from 0 to 1"),
    "scale_down_unneeded_time": (_seconds, _TIME),
    "scale_down_delay_after_add": (_seconds, _TIME),
    "skip_nodes_with_local_storage": (_truth, "true or false"),
    "skip_nodes_with_system_pods": (_truth, "true or false"),
    "expendable_pods_priority_cutoff": (_priority, "a whole number"),
}


def settings_of(given: Mapping[str, Any], where: str) -> AutoscalerSettings:
    """Return the settings of some values by name, written with ``-`` or ``_``. ``where`` names the place in messages.

    Raises:
        ValueError: for a name or a value that cannot be used, naming place, value and what is right.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        key = str(name).removeprefix("--").replace("-", "_")
        if key not in _READERS:
            known = [one.replace("_", "-") for one in _READERS]
            near = get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"{where}: there is no setting {name!r}; {hint}")
        read, right = _READERS[key]
        try:
            found[key] = read(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{where}: {str(name).replace('_', '-')}: {value!r}: expected {right}") from None
    return AutoscalerSettings(**found)
