"""``kubesched version``: versions of kubesched and its parts, for bug reports."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version
from typing import Final

import msgspec

from kubesched import __version__

from .console import write

__all__ = ["run"]

#: Kubernetes release whose behaviour this program follows.
KUBERNETES: Final = "1.36"


def run(options: argparse.Namespace) -> int:
    facts = {
        "kubesched": __version__,
        "kubernetes": KUBERNETES,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "msgspec": version("msgspec"),
    }
    if options.output == "json":
        write(msgspec.json.encode(facts).decode() + "\n")
    else:
        write("".join(f"{name:<11} {value}\n" for name, value in facts.items()))
    return 0
