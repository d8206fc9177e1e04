"""``kubesched``: the table of commands, and what all commands have in common.

A command ``x`` is a function below :mod:`.arguments` and a module ``x_command`` with ``run``. The module is imported
when the command runs, so that ``--help`` and ``--version`` are quick. Exit codes: 0 done; 1 the command or a check
failed; 2 wrong usage; 70 a defect of kubesched, reported with its traceback; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from kubesched import __version__
from kubesched.base.extras import needing
from kubesched.base.lines import printable

from .arguments import clusters, measurements, planning, simulations, small
from .console import KEPT, flush
from .errors import CliError, describe
from .interrupts import interruptible

__all__ = ["build_parser", "main"]

_ABOUT: Final = """\
The Kubernetes scheduler in Python: simulate a cluster from manifests, see where pods go and why some do not,
measure, and check decisions against recorded ones."""

#: Exit code after a defect of this program: EX_SOFTWARE of sysexits.h.
CRASHED: Final = 70

#: Name, description in one line, function that adds the arguments.
_COMMANDS: Final[tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None]], ...]] = (
    ("demo", "a tour of under a minute: a cluster, pods being placed, a pending pod explained", small.demo),
    ("examples", "copy the examples of this installation to a folder", small.examples),
    ("simulate", "schedule manifests on a simulated cluster, and say what is pending and why", simulations.simulate),
    (
        "explain",
        "why pods are pending, what stands in the way, and the smallest changes that help",
        simulations.explain,
    ),
    ("audit", "what is wrong in a cluster as it stands, with the rule, the objects and what to do", simulations.audit),
    ("capacity", "how many more pods of a kind, or of a mix, fit, and what stops the next one", planning.capacity),
    ("plan", "the cheapest nodes for the pods that have none, or the nodes that can go", planning.plan),
    (
        "decisions",
        "recorded decisions of a scheduler, and which would differ by another configuration",
        simulations.decisions,
    ),
    ("diff", "two results, clusters or recorded runs side by side: figures, and pods that differ", simulations.diff),
    ("sweep", "many runs with different parameters, on processes or a cluster, into one table", simulations.sweep),
    ("trace", "read a published batch trace, and write its tasks as pods that arrive over time", simulations.trace),
    ("up", "an embedded cluster that kubectl can talk to, until Ctrl-C", clusters.up),
    ("kubelets", "hollow nodes on the API server of a kubeconfig, until Ctrl-C", clusters.kubelets),
    ("run", "schedule a real cluster, with kube-scheduler's flags and files", clusters.run),
    ("view", "the dashboard over files: results, recorded decisions and saved clusters", clusters.view),
    ("import", "copy a real cluster into a file to start from", clusters.import_),
    ("bench", "measure throughput, latencies and memory of the whole path", measurements.bench),
    ("conformance", "replay decisions recorded from Kubernetes and compare", measurements.conformance),
    ("config", "check a KubeSchedulerConfiguration, or convert an older one to v1", small.config),
    ("plugins", "list all plugins and the extension points they implement", small.plugins),
    ("completion", "print a script that completes commands in a shell", small.completion),
    ("version", "show the versions of kubesched and of its parts", small.version),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. The parsed arguments name the command's module."""
    parser = argparse.ArgumentParser(prog="kubesched", description=_ABOUT)
    parser.add_argument("--version", action="version", version=f"kubesched {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for name, about, add_arguments in _COMMANDS:
        formatter = argparse.RawDescriptionHelpFormatter
        command = commands.add_parser(name, help=about, description=about, formatter_class=formatter)
        add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A usage error raises SystemExit(2), as argparse does."""
    given = list(sys.argv[1:] if argv is None else argv)
    # The flags of "run" are kube-scheduler's, and are read and refused as kube-scheduler does. argparse reads flags
    # differently.
    options = build_parser().parse_args(given) if given[:1] != ["run"] else None
    try:
        if options is None:
            return _run(given[1:])
        with interruptible():
            code: int = import_module(f"kubesched.cli.{options.command}_command").run(options)
            flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of the output has exited (head, less). Python must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CliError as error:
        return _fail(str(error), error.code)
    except (Exception, SystemExit) as error:  # a plugin that ends the process must not choose the exit code
        if isinstance(error.__cause__, KeyboardInterrupt):  # raised while a class was made (before Python 3.12)
            return _fail("interrupted", 130)
        message = describe(error)
        if message is None:
            return _crash(error)
        return _fail(message, 1)
    return code


def _run(arguments: Sequence[str]) -> int:
    """Run ``kubesched run``, which handles signals and failures itself."""
    with needing("kubesched run", "run"):
        from .run.command import main as run_main  # noqa: PLC0415 - it needs the extra "run"
    code = run_main(arguments)
    flush()
    return code


def _crash(error: BaseException) -> int:
    """Report a defect of kubesched: the traceback for a bug report, then one line that sums it up."""
    from kubesched.base.tasks import TaskCrashedError  # noqa: PLC0415 - not needed without a failure

    summary = str(error) if isinstance(error, TaskCrashedError) else f"{type(error).__name__}: {error}"
    with contextlib.suppress(BrokenPipeError):
        print("".join(traceback.format_exception(error)).rstrip(), file=sys.stderr)
    place = _outside(error)
    whose = (
        f"It was raised at {place}, which is not part of kubesched: probably a defect of a plugin."
        if place
        else "This is a defect of kubesched; please report it with the above."
    )
    return _fail(f"internal error: {summary}\n{whose}", CRASHED)


def _outside(error: BaseException) -> str:
    """Return the file and line that raised the first cause; "" if that was kubesched or an installed library."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    own = [str(Path(__file__).parent.parent), *sysconfig.get_paths().values()]
    others = [frame for frame in frames if not any(frame.filename.startswith(f"{path}{os.sep}") for path in own)]
    if not others or frames[-1].filename.startswith(f"{own[0]}{os.sep}") or frames[-1].filename.startswith("<"):
        return ""
    return f"{others[-1].filename}:{others[-1].lineno}"


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(f"kubesched: {printable(message, keep=KEPT)}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
