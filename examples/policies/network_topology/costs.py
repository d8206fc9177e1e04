"""Cost of traffic: nothing on the node, 1 in the zone, given costs between zones and regions, the most where unknown.

Arguments, in the sense of scheduler-plugins' NetworkTopology; each cost holds in both directions unless both are given::

    zones: [{from: z1, to: z2, cost: 5}]              # of one region
    regions: [{from: us-west-1, to: us-east-1, cost: 20}]
"""

import numpy as np

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

SAME_NODE = 0
SAME_ZONE = 1
UNKNOWN = 100


def _table(name, given):
    costs = {}
    for index, one in enumerate(given or ()):
        try:
            costs[one["from"], one["to"]] = float(one["cost"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{name}[{index}]: {one!r}; expected from, to and cost") from None
    return {**{(to, origin): cost for (origin, to), cost in costs.items()}, **costs}


class NetworkCosts:
    def __init__(self, args):
        """Raises ValueError: naming the entry."""
        self.zones = _table("zones", args.get("zones"))
        self.regions = _table("regions", args.get("regions"))
        self._places = []  # distinct (region, zone)
        self._place_of = np.zeros(0, np.intp)  # [rows]
        self._matrix = np.zeros((0, 0))
        self._version = None

    def between(self, origin, to):
        """The cost between two places, (region, zone) each; None when it is not known. '' is a missing label."""
        if not any(origin) or not any(to):
            return None
        if origin[0] == to[0]:
            return SAME_ZONE if origin[1] == to[1] else self.zones.get((origin[1], to[1]))
        return self.regions.get((origin[0], to[0]))

    def to_row(self, nodes, rows, row):
        """float64[len(rows)]: the cost of traffic with a node; NaN where it is not known."""
        self._follow(nodes)
        costs = self._matrix[self._place_of[rows], self._place_of[row]]
        return np.where(np.asarray(rows) == row, SAME_NODE, costs)

    def _follow(self, nodes):
        """Places are computed again when nodes or labels changed."""
        version = (nodes.membership_version, nodes.labels_version, nodes.capacity)
        if version == self._version:
            return
        self._version = version
        places = {}
        self._place_of = np.zeros(nodes.capacity, np.intp)
        for row in nodes.order().tolist():
            labels = nodes.info(row).labels
            self._place_of[row] = places.setdefault((labels.get(REGION, ""), labels.get(ZONE, "")), len(places))
        self._matrix = np.array(
            [[np.nan if (cost := self.between(a, b)) is None else cost for b in places] for a in places], np.float64
        )
