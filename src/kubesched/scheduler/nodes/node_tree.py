"""Node tree: the nodes in the order in which they are evaluated, round robin over zones.

Source: rules/cache-and-events §8 (upstream ``nodeTree``).
"""

from __future__ import annotations

from typing import Final

from kubesched.api.types import Labels

__all__ = ["NodeTree", "zone_key"]

_ZONE: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def zone_key(labels: Labels) -> str:
    """Return a key of a node's region and zone. A deprecated label wins over the new label, even if the deprecated
    label is empty.
    """
    zone = labels.get(_ZONE[0]) if _ZONE[0] in labels else labels.get(_ZONE[1], "")
    region = labels.get(_REGION[0]) if _REGION[0] in labels else labels.get(_REGION[1], "")
    return f"{region}:\x00:{zone}" if zone or region else ""


class NodeTree:
    """Tree of zones and nodes: zones in the order of their first node, nodes of a zone in the order of arrival."""

    def __init__(self) -> None:
        # Dicts serve as ordered sets, because removal from the middle is cheap.
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def __contains__(self, name: str) -> bool:
        return name in self._zone_of

    def add(self, name: str, labels: Labels) -> bool:
        """Put a node at the end of its zone; False if it is in this zone already, and stays where it is."""
        key = zone_key(labels)
        if self._zone_of.get(name) == key:
            return False
        self.remove(name)
        self._zones.setdefault(key, {})[name] = None
        self._zone_of[name] = key
        return True

    def remove(self, name: str) -> bool:
        """Remove a node; False if it was not there. A zone is removed with its last node."""
        key = self._zone_of.pop(name, None)
        if key is None:
            return False
        zone = self._zones[key]
        del zone[name]
        if not zone:
            del self._zones[key]
        return True

    def order(self) -> list[str]:
        """Return the node names: the first node of each zone, then the second of each, and so on."""
        if len(self._zones) == 1:
            return list(next(iter(self._zones.values())))
        names: list[str] = []
        lanes = [iter(zone) for zone in self._zones.values()]
        while lanes:
            remaining = []
            for lane in lanes:
                name = next(lane, None)
                if name is not None:
                    names.append(name)
                    remaining.append(lane)
            lanes = remaining
        return names
