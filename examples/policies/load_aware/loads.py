"""Load of nodes as metrics providers report it, and of the pods placed on them since: in columns by row of the node table.

A metrics provider is a class that is called with (handle, report). It calls ``report(node_name, load)`` whenever it knows
more, with None when it knows nothing any more. Reports come in the scheduler's event loop; between two reports of a node its
load is the last one, plus what the pods placed there since are expected to use.
"""

import importlib
from typing import NamedTuple

import numpy as np


class Load(NamedTuple):
    """Percent of a node's capacity: means and standard deviations over the provider's window."""

    cpu: float
    cpu_deviation: float = 0.0
    memory: float = 0.0
    memory_deviation: float = 0.0


class AnnotatedLoads:
    """The provider for simulations and tests: the node annotation ``kubesched.io/load``, such as ``cpu=40/36 memory=20/10``.

    A mean and a standard deviation in percent, the deviation and the memory are optional.
    """

    ANNOTATION = "kubesched.io/load"

    def __init__(self, handle, report):
        self.report = report
        handle.watch("nodes", self)

    def on_add(self, node, is_initial):
        self.report(node.metadata.name, self.read(node))

    def on_update(self, old, new):
        if self._text(old) != self._text(new):
            self.on_add(new, False)

    def on_delete(self, node):
        node = getattr(node, "obj", node)
        if node is not None:
            self.report(node.metadata.name, None)

    def _text(self, node):
        return (node.metadata.annotations or {}).get(self.ANNOTATION)

    def read(self, node):
        """Raises ValueError: naming node, annotation and value."""
        text = self._text(node)
        if text is None:
            return None
        found = {}
        try:
            for part in text.split():
                name, _, values = part.partition("=")
                mean, _, deviation = values.partition("/")
                if name not in ("cpu", "memory"):
                    raise ValueError
                found[name], found[f"{name}_deviation"] = float(mean), float(deviation or 0)
            return Load(**found)
        except (ValueError, TypeError):
            where = f"node {node.metadata.name}: annotation {self.ANNOTATION}"
            raise ValueError(f"{where}: {text!r}; expected percents such as cpu=40/36 memory=20/10") from None


def provider_class(name):
    """The class that the argument ``provider`` names: ``annotations``, or ``package.module:Class``.

    Raises:
        ValueError: when there is none.
    """
    if name == "annotations":
        return AnnotatedLoads
    module, colon, cls = str(name).rpartition(":")
    try:
        if not colon:
            raise ImportError("expected annotations, or package.module:Class")
        return getattr(importlib.import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"provider: {name!r}: {error}") from None


class LoadColumns:
    """``known`` is by node name: the last report; ``placed`` by pod UID: (node name, milli-CPU, bytes of memory)."""

    def __init__(self):
        self.known = {}
        self.placed = {}
        self._since = {}  # node name: UIDs of pods placed since its last report
        self._columns = np.zeros((0, 0))
        self._version = -1

    def report(self, name, load):
        for uid in self._since.pop(name, ()):
            del self.placed[uid]
        if load is None:
            self.known.pop(name, None)
        else:
            self.known[name] = load
        self._version = -1

    def place(self, uid, name, cpu, memory):
        self.remove(uid)
        self.placed[uid] = (name, cpu, memory)
        self._since.setdefault(name, set()).add(uid)
        self._version = -1

    def remove(self, uid):
        """The name of the node that the pod was placed on since its last report, or None."""
        name = self.placed.pop(uid, (None,))[0]
        if name is not None:
            self._since[name].discard(uid)
            self._version = -1
        return name

    def of(self, nodes, rows):
        """float64[6, len(rows)]: the four figures of :class:`Load`, then milli-CPU and bytes placed since; NaN if unknown."""
        if self._version != nodes.membership_version or self._columns.shape[1] != nodes.capacity:
            self._columns = np.full((6, nodes.capacity), np.nan)
            for name, load in self.known.items():
                row = nodes.row_of(name)
                if row is not None:
                    self._columns[:, row] = (*load, 0, 0)
            for name, cpu, memory in self.placed.values():
                row = nodes.row_of(name)
                if row is not None:
                    self._columns[4:, row] += (cpu, memory)
            self._version = nodes.membership_version
        return self._columns[:, rows]
