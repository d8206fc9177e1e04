"""Large documents as JSON, also where there is no memory for them."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from kubesched.base.large_json import large_json


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_the_text_is_the_encoders(indent: int | None) -> None:
    value = {"a": [1, "ä", None], "b": {"c": 1.5}}
    text = msgspec.json.encode(value)
    assert large_json(value, indent=indent) == (text if indent is None else msgspec.json.format(text, indent=indent))


#: A result of 60 MB in a process that may take little more than it has; its peak is what it writes.
PROGRAM = """
import resource, sys
from kubesched.base.large_json import large_json
from kubesched.cli.main import main
from kubesched.cli import plugins_command
from kubesched.cli.console import write_json

def run(options):
    data = ["x" * 100] * 600_000
    size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20),) * 2)
    write_json(data)

plugins_command.run = run
sys.exit(main(["plugins"]))
"""


def test_a_document_that_there_is_no_memory_for_is_an_error_in_words_and_not_a_segmentation_fault() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "kubesched: there is not enough memory for this; give the process more, or make the run smaller\n"
    )
