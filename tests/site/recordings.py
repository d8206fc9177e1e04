"""Recordings of terminals in the pages: what their commands print, as drawings (``make recordings``).

A page says ``![...](recordings/NAME.svg)`` behind a block of commands. The last command of that block runs in a terminal of its
own, of a fixed width, and what it prints is written to ``docs/recordings/NAME.svg``.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
WIDTH: Final = 100
_RECORDING: Final = re.compile(
    r"^\$ (kubesched [^\n]+)\n(?:[^`$][^\n]*\n)*```\n+!\[[^\]]*\]\(recordings/([\w-]+)\.svg\)", re.M
)
#: Without the fonts that rich would load from elsewhere: the reader's own monospaced font is used.
_FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def recorded() -> dict[str, str]:
    """Name of each recording in the pages to its command."""
    pages = sorted(DOCS.rglob("*.md"))
    return {name: command for page in pages for command, name in _RECORDING.findall(page.read_text(encoding="utf-8"))}


def output_of(command: str) -> str:
    """Output of a command on a terminal, with its colours.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    ours, its = pty.openpty()
    argv = [sys.executable, "-m", "kubesched.cli", *shlex.split(command)[1:]]
    environment = {"PATH": os.defpath, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=subprocess.DEVNULL) as process:
        os.close(its)
        printed = b""
        try:
            while part := os.read(ours, 65536):
                printed += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, printed)
    return printed.decode().replace("\r\n", "\n")


def drawing(name: str, command: str) -> str:
    """A terminal with a command and its output, as SVG that loads nothing."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output_of(command)))
    return console.export_svg(title="", theme=MONOKAI, code_format=_FORMAT, unique_id=name)


def main() -> int:
    for name, command in recorded().items():
        (DOCS / "recordings" / f"{name}.svg").write_text(drawing(name, command), encoding="utf-8")
        print(f"docs/recordings/{name}.svg  {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
