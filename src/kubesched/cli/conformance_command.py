"""``kubesched conformance``: see :func:`.arguments.conformance`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kubesched.plugins import in_tree_registry
from kubesched.simulate.conformance import AreaResult, golden_files, replay_file
from kubesched.simulate.report import Line, columns

from .console import print_lines, progress_bar, write
from .errors import CliError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    try:
        files = golden_files([Path(path) for path in options.paths], options.area)
    except FileNotFoundError as error:
        raise CliError(str(error)) from None
    if not files:
        what = f"no golden file of area {options.area}" if options.area else "no golden files (*.jsonl.gz)"
        raise CliError(f"{', '.join(options.paths)}: {what}")
    registry = in_tree_registry()
    results: list[AreaResult] = []
    done = 0
    for path in files:
        with progress_bar(path.name, quiet=options.quiet) as bar:

            def advance(show: object = bar.update) -> None:
                nonlocal done
                done += 1
                assert callable(show)
                show(done, 0)

            try:
                results.append(replay_file(path, registry, advance))
            except (ValueError, KeyError, TypeError) as error:
                text = str(error) if isinstance(error, ValueError) else f"{path}: not a golden vector: {error!r}"
                raise CliError(text) from error
    if options.json:
        write(_as_json(results))
    else:
        print_lines(_as_table(results))
    return 0 if all(not result.failures for result in results) and any(result.total for result in results) else 1


def _as_json(results: Sequence[AreaResult]) -> str:
    data = {
        "passed": sum(result.passed for result in results),
        "total": sum(result.total for result in results),
        "areas": [
            {
                "area": result.area,
                "passed": result.passed,
                "total": result.total,
                "failures": [
                    {"vector": failure.vector, "differences": failure.differences} for failure in result.failures
                ],
            }
            for result in results
        ],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _as_table(results: Sequence[AreaResult]) -> list[Line]:
    lines: list[Line] = []
    for result in results:
        for failure in result.failures:
            lines.append(Line(f"{result.area}: {failure.vector}", "bad"))
            lines += [Line(f"  {text}") for text in failure.differences]
    if lines:
        lines.append(Line(""))
    rows = [(result.area, f"{result.passed:,}", f"{result.total:,}") for result in results]
    passed, total = sum(result.passed for result in results), sum(result.total for result in results)
    texts = columns(("AREA", "PASSED", "TOTAL"), [*rows, ("all", f"{passed:,}", f"{total:,}")], right=(1, 2))
    lines.append(Line(texts[0], "dim"))
    lines += [
        Line(text, "" if not result.failures else "bad") for text, result in zip(texts[1:-1], results, strict=True)
    ]
    lines.append(Line(texts[-1], "good" if passed == total else "bad"))
    if not total:
        lines.append(Line("nothing was compared: the files are empty", "bad"))
    return lines
