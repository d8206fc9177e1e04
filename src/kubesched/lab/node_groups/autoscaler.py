"""Node groups from the flags of cluster-autoscaler: ``--nodes=MIN:MAX:NAME``, with a catalogue for sizes and prices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubesched.api.selectors import is_label_value
from kubesched.cluster.files import ManifestError

from .catalogue import Catalogue, Offer
from .group import MOST_NODES, NodeGroup
from .offers import size_of, template_of

__all__ = ["groups_of_flags"]

_NODES: Final = re.compile(r"(?:--?nodes=)?(\d{1,9}):(\d{1,9}):(\S+)")


def groups_of_flags(flags: Sequence[str], catalogue: Catalogue) -> list[NodeGroup]:
    """Return a group for each value of ``--group``, which are those of cluster-autoscaler's ``--nodes``.

    The catalogue's row of the same name has the price, and the size or the model. A group without a size is like the
    existing nodes of that name. The name of a group that is a path is its last part.

    Raises:
        ManifestError: for flags that cannot be used; all are named.
    """
    problems: list[str] = []
    found: dict[str, NodeGroup] = {}
    for index, flag in enumerate(flags):
        where = f"--group[{index}]" if len(flags) > 1 else "--group"
        match = _NODES.fullmatch(flag.strip())
        if match is None:
            problems.append(f"{where}: {flag!r}: expected MIN:MAX:NAME, such as 1:10:general")
            continue
        low, high, name = int(match[1]), int(match[2]), match[3].rstrip("/").rpartition("/")[2]
        if low > high or high > MOST_NODES:
            problems.append(
                f"{where}: {flag!r}: the first number is the least, the second the most, {MOST_NODES} at most"
            )
        elif not is_label_value(name) or not name:
            problems.append(f"{where}: {flag!r}: the name must be of letters, digits, -, _ and ., at most 63")
        elif name in found:
            problems.append(f"{where}: {flag!r}: group {name} is given twice; give it once")
        elif name not in catalogue:
            rows = ", ".join(list(catalogue)[:8]) or "no row at all"
            problems.append(f"{where}: {flag!r}: the catalogue has no row {name} with its price; it has {rows}")
        else:
            found[name] = _group(name, low, high, catalogue[name], catalogue, where)
    if problems:
        raise ManifestError(*problems)
    return list(found.values())


def _group(name: str, low: int, high: int, offer: Offer, catalogue: Catalogue, where: str) -> NodeGroup:
    size = size_of(offer, catalogue)
    template = (
        template_of(size, instance_type=offer.instance_type, arch=offer.arch, labels=offer.labels, taints=offer.taints)
        if size
        else {}
    )
    return NodeGroup(
        name=name,
        template=template,
        like="" if template else offer.like or name,
        minimum=low,
        maximum=high,
        price=offer.price or offer.spot_price or 0.0,
        zones=offer.zones,
        labels=offer.labels,
        ready_after=offer.ready_after,
        spot_failure_rate=0.0 if offer.price else offer.spot_failure_rate,
        source=where,
    )
