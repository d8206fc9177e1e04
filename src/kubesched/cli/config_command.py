"""``kubesched config check``: the plugins that a configuration really runs, per profile and extension point."""

from __future__ import annotations

import argparse

import msgspec

from kubesched.config import load_config_file
from kubesched.simulate.report import Line

from .console import print_lines, warn, write
from .loading import expand, load_registry

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    registry, _ = load_registry(options.plugin_module)
    config = load_config_file(options.file)
    expanded = expand(config, registry, options.file)
    if options.json:
        data = {
            name: {point: [{"name": each, "weight": weight} if weight else {"name": each} for each, weight in plugins]
                   for point, plugins in points.items() if plugins}
            for name, points in expanded.items()
        }  # fmt: skip
        write(msgspec.json.format(msgspec.json.encode({"profiles": data}), indent=2).decode() + "\n")
        return 0
    lines = [Line(f"{options.file} is valid", "good")]
    for name, points in expanded.items():
        lines += [Line(""), Line(f"profile {name}", "title")]
        width = max(len(point) for point, plugins in points.items() if plugins)
        for point, plugins in points.items():
            if plugins:
                texts = [f"{each} (weight {weight})" if weight else each for each, weight in plugins]
                lines.append(Line(f"  {point.ljust(width)}  {', '.join(texts)}"))
    print_lines(lines)
    if config.extenders:
        warn(f"{options.file}: extenders are checked, not called, by this command")
    return 0
