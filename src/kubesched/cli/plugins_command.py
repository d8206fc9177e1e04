"""``kubesched plugins``: every known plugin, its source, and the extension points that it implements."""

from __future__ import annotations

import argparse

from kubesched.base.lines import Line, columns
from kubesched.scheduler.config import default_config
from kubesched.scheduler.framework.points import POINTS
from kubesched.scheduler.plugins import in_tree_registry

from .console import print_lines, write_json
from .loading import load_registry

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    registry, own = load_registry(options.plugin_module)
    in_tree = in_tree_registry().keys()
    default = {name for profile in default_config().profiles for name in profile.plugins.enabled_names()}
    rows = []
    for name, extended in sorted(registry.capabilities().items()):
        source = "in-tree" if name in in_tree else "module" if name in own else "entry point"
        points = [point.key for point in POINTS if point.key in extended]
        rows.append((name, source, "yes" if name in default else "no", points))
    if options.output == "json":
        data = [
            {"name": name, "source": source, "default": enabled == "yes", "points": points}
            for name, source, enabled, points in rows
        ]
        write_json(data)
        return 0
    table = columns(
        ("PLUGIN", "SOURCE", "DEFAULT", "EXTENSION POINTS"), [(*row[:3], ", ".join(row[3])) for row in rows]
    )
    print_lines([Line(table[0], "dim"), *(Line(text) for text in table[1:])])
    return 0
