"""Entry point of ``kubectl kubesched``: commands that read a cluster take it from the kubeconfig that kubectl uses.

kubectl runs the program ``kubectl-kubesched`` with the rest of the command line. A command gets ``--kubeconfig`` and
the namespace of the context unless the line names a source itself; everything else is as in ``kubesched``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["arguments_of", "main"]

#: Commands that read a cluster, and options that name what they read.
_READING: Final = ("audit", "explain")
_SOURCES: Final = ("--kubeconfig", "--from", "--server", "-f", "--filename", "--message")
_NAMESPACES: Final = ("-n", "--namespace", "-A", "--all-namespaces", "--all-pending")
_KUBECTL_SECONDS: Final = 30


def main() -> int:
    """Run a command as a plugin of kubectl."""
    from .quiet import be_quiet  # noqa: PLC0415 - before the rest of the program

    be_quiet()
    from .main import main as run  # noqa: PLC0415 - the rest of the program

    with tempfile.TemporaryDirectory(prefix="kubesched-") as scratch:
        return run(arguments_of(sys.argv[1:], Path(scratch)))


def arguments_of(given: Sequence[str], scratch: Path) -> list[str]:
    """Return the arguments with the kubeconfig and the namespace that kubectl would use.

    ``scratch`` is a folder for a merged kubeconfig, if ``KUBECONFIG`` names several files.
    """
    line = list(given)
    if not line or line[0] not in _READING or "-h" in line or "--help" in line:
        return line
    if not _names(line, _SOURCES):
        line += ["--kubeconfig", str(_kubeconfig(scratch))]
    if "--kubeconfig" in line and not _names(line, _NAMESPACES) and line[0] == "explain":
        namespace = _namespace(Path(line[line.index("--kubeconfig") + 1 :][0]), _value(line, "--context"))
        # Without a pod the namespace would hide pending pods of others.
        if namespace and _has_pod(line):
            line += ["--namespace", namespace]
    return line


def _names(line: Sequence[str], options: Sequence[str]) -> bool:
    return any(word.split("=", 1)[0] in options for word in line)


def _value(line: Sequence[str], option: str) -> str:
    for at, word in enumerate(line):
        if word == option and at + 1 < len(line):
            return line[at + 1]
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
    return ""


def _has_pod(line: Sequence[str]) -> bool:
    """Return True if a word right after the command names a pod."""
    return len(line) > 1 and not line[1].startswith("-")


def _kubeconfig(scratch: Path) -> Path:
    """Return the file that kubectl reads. Several files are merged by kubectl itself."""
    named = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    there = [path for path in named if path.exists()]
    if len(there) > 1:
        merged = scratch / "kubeconfig"
        command = ["kubectl", "config", "view", "--raw", "--flatten"]
        try:
            found = subprocess.run(command, capture_output=True, timeout=_KUBECTL_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemExit(
                f"kubesched: KUBECONFIG names several files, and kubectl cannot merge them: {error}"
            ) from None
        merged.touch(mode=0o600)
        merged.write_bytes(found.stdout)
        return merged
    return (there or named or [Path.home() / ".kube" / "config"])[0]


def _namespace(kubeconfig: Path, context: str) -> str:
    """Return the namespace of a context; empty if there is none, or if the file cannot be read, which is said later."""
    # Only where a namespace is missing.
    from kubesched.api.yamltext import TextError, read_single  # noqa: PLC0415
    from kubesched.base.small_file import read_small_file  # noqa: PLC0415

    try:
        data: Any = read_single(read_small_file(kubeconfig), "kubeconfig")
        wanted = context or data["current-context"]
        found = next(one["context"] for one in data["contexts"] if one["name"] == wanted)
        return str(found.get("namespace") or "")
    except (OSError, TextError, KeyError, TypeError, AttributeError, StopIteration):
        return ""
