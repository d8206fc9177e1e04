"""``kubesched config``: ``check`` lists the plugins that a configuration runs, ``convert`` writes any version as v1."""

from __future__ import annotations

import argparse

from kubesched.base.lines import Line
from kubesched.scheduler.config import dump_yaml
from kubesched.scheduler.config.older import Loaded, older
from kubesched.scheduler.loading import expand

from .console import print_lines, warn, write, write_json
from .loading import load_setup
from .saved_file import output_file, refuse_to_overwrite

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    return _convert(options) if options.action == "convert" else _check(options)


def _convert(options: argparse.Namespace) -> int:
    loaded = older().load_file(options.file)
    for warning in loaded.warnings:
        warn(warning)
    text = _header(loaded) + dump_yaml(loaded.config)
    if options.output is None:
        write(text)
        return 0
    if not options.overwrite:
        refuse_to_overwrite(options.output, "--output", "add --overwrite, or give another name")
    with output_file(options.output, "--output") as file:
        file.write(text.encode())
    return 0


def _header(loaded: Loaded) -> str:
    """Return comment lines that name the requirements of the written file."""
    if not loaded.retired:
        return ""
    names = ", ".join(sorted(loaded.retired))
    return f"# Uses retired plugins ({names}): needs --plugin-module kubesched.retired.plugins\n"


def _check(options: argparse.Namespace) -> int:
    registry, config, _, remarks = load_setup(options, options.file, remark_unused=False)
    for remark in remarks:
        warn(remark)
    expanded = expand(config, registry, options.file)
    if options.output == "json":
        data = {
            name: {point: [{"name": each, "weight": weight} if weight else {"name": each} for each, weight in plugins]
                   for point, plugins in points.items() if plugins}
            for name, points in expanded.items()
        }  # fmt: skip
        write_json({"profiles": data})
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
