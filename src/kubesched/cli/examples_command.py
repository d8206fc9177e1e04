"""``kubesched examples``: copy the examples of an installation to a folder where they can be read and changed."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from kubesched.base.data import data_folder

from .console import write
from .errors import CliError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    target = Path(options.folder)
    try:
        # Leave out compiled files, and files that Jupyter and editors leave behind.
        shutil.copytree(data_folder("examples"), target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    except FileExistsError:
        raise CliError(f"{target}: exists already and is not overwritten; give another name") from None
    write(f"copied the examples to {target}; {target / 'README.md'} describes them\n")
    return 0
