"""Processes that a benchmark starts and measures from outside: their start, their end, and their use of resources.

Callers: :mod:`.http_bench`, :mod:`.live_bench`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import CliError

__all__ = ["child", "cluster", "cpu_seconds", "memory_mib", "refuse_others"]


def refuse_others(options: argparse.Namespace, mode: str, *, profile: bool = False) -> None:
    """Refuse options that choose or change a workload. This mode has a fixed workload and would ignore them."""
    others = {
        "FILE": options.file,
        "--shape": options.shape != "basic",
        "--case": options.case,
        "--workload": options.workload,
        "--set": options.settings,
        "--decisions": options.decisions,
        "--profile-to": options.profile_to and not profile,
    }
    for name, given in others.items():
        if given:
            raise CliError(f"{name} does not go with {mode}, which creates plain pods and nothing else", code=2)


@contextmanager
def child(command: list[str], what: str, *, first_line: bool = False) -> Iterator[tuple[str, int]]:
    """Run a process until the end of the block.

    Yield its first line of output ("" unless asked for) and its process number.

    If the process ends by itself and the block raises an error, the error includes the process's stderr.
    """
    with tempfile.TemporaryFile("w+") as errors:
        output = subprocess.PIPE if first_line else subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        try:
            line = process.stdout.readline().strip() if process.stdout is not None else ""
            if first_line and not line:
                process.wait()
                errors.seek(0)
                raise CliError(f"{what} did not start: {errors.read().strip()}")
            try:
                yield line, process.pid
            except CliError as error:
                if process.poll() is None:
                    raise
                errors.seek(0)
                text = f"{what} ended with exit code {process.returncode}: {errors.read().strip()}"
                raise CliError(f"{error}\n{text}") from None
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def cluster(kubeconfig: Path, nodes: int, seed: int, *more: str) -> Iterator[tuple[str, int]]:
    """Run ``kubesched up`` in a process of its own, which writes the kubeconfig. Yield its URL and process number."""
    command = [sys.executable, "-m", "kubesched.cli", "up", "--quiet", "--nodes", str(nodes), "--seed", str(seed)]
    command += ["--kubeconfig-out", str(kubeconfig), *more]
    with child(command, "kubesched up", first_line=True) as (url, process):
        yield url, process


def cpu_seconds(process: int) -> float | None:
    """Return the CPU time that a process has used; None if there is no /proc, or no such process any more."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(process: int) -> tuple[float, float] | None:
    """Return the resident memory of a process, now and at its peak, in MiB; None if there is no /proc."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = {
        name: float(rest.split()[0]) / 1024
        for name, _, rest in (line.partition(":") for line in lines)
        if rest.endswith(" kB")
    }
    return (sizes["VmRSS"], sizes["VmHWM"]) if "VmRSS" in sizes and "VmHWM" in sizes else None
