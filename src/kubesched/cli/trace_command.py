"""``kubesched trace``: see :func:`.arguments.simulations.trace`."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final

from kubesched.api.yamltext import to_yaml
from kubesched.lab import traces
from kubesched.lab.traces import Trace, inflated, table_text

from .console import warn, write
from .errors import CliError

__all__ = ["READERS", "run"]

#: Reader of each format. The second value is true if one trace may be several files.
READERS: Final[dict[str, tuple[Callable[..., Trace], bool]]] = {
    "alibaba-2018": (traces.read_alibaba_2018, False),
    "alibaba-2020": (traces.read_alibaba_2020, False),
    "alibaba-2023": (traces.read_alibaba_2023, False),
    "google-2019": (traces.read_google_2019, True),
    "philly": (traces.read_philly, False),
}


def run(options: argparse.Namespace) -> int:
    reader, several = READERS[options.format]
    if len(options.files) > 1 and not several:
        raise CliError(f"a trace of the format {options.format} is one file; got {len(options.files)}", code=2)
    trace = reader(options.files if several else options.files[0], **_reader_options(reader, options))
    for reason, count in trace.left_out.items():
        warn(f"{count:,} left out: {reason}")
    if not trace.tasks:
        raise CliError(f"{', '.join(options.files)}: no task is left")
    if options.inflate is not None:
        trace = inflated(trace, options.inflate, options.seed)
    if options.output == "yaml":
        for task in trace.tasks:
            for each in task.as_objects(shared_gpus=options.shared_gpus, gang=options.gang):
                write(f"---\n{to_yaml(each, sort_keys=False)}")
        return 0
    if options.gang == "labels":
        raise CliError("--gang-labels: a table has no such labels; give -o yaml, too, or --gang", code=2)
    parts = sum(bool(task.gpus) and task.gpu_milli < 1000 for task in trace.tasks)
    if parts:
        warn(
            f"{parts:,} tasks request a part of a GPU, which counts as a whole one in a table; see -o yaml --shared-gpus"
        )
    write(table_text(trace, gang=options.gang == "PodGroup"))
    sys.stderr.flush()
    return 0


def _reader_options(reader: Callable[..., Trace], options: argparse.Namespace) -> dict[str, Any]:
    """Return the reader's options, apart from the files."""
    takes = [name for name, one in inspect.signature(reader).parameters.items() if one.kind is one.KEYWORD_ONLY]
    given = dict(options.settings)
    if options.limit is not None:
        given["limit"] = str(options.limit)
    found = {}
    for name, text in given.items():
        if name not in takes:
            known = ", ".join(takes) or "none"
            raise CliError(f"{options.format} has no option {name}; there are: {known}", code=2)
        if not (text.isascii() and text.isdecimal()):
            raise CliError(f"{name}: {text!r}; expected a whole number of 0 or more", code=2)
        found[name] = int(text)
    return found
