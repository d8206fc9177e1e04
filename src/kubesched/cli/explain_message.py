"""``kubesched explain --message TEXT``: the reasons in a message of any scheduler; needs no cluster.

Caller: :mod:`.explain_command`.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.explain.messages import MOST_CHARACTERS, read_message
from kubesched.explain.told import message_explanation, message_lines

from .console import print_lines, write, write_json
from .errors import CliError

__all__ = ["explain_message"]

#: Options that name a cluster or a pod, and how they are written.
_OTHERS = {
    "pod": "POD",
    "filename": "-f",
    "start": "--from",
    "kubeconfig": "--kubeconfig",
    "node": "--node",
    "server": "--server",
    "namespace": "-n",
}


def explain_message(options: argparse.Namespace) -> int:
    """Explain ``options.message``, ``-`` for standard input. Return the exit code."""
    given = [written for name, written in _OTHERS.items() if getattr(options, name, None)]
    if given:
        raise CliError(f"--message explains a text alone; leave out {', '.join(given)}", code=2)
    text = options.message if options.message != "-" else _from_input()
    if not text.strip():
        raise CliError("--message: the text is empty; give the message of an event or of the condition PodScheduled")
    document = message_explanation(read_message(text))
    if options.output == "json":
        write_json(document)
    elif options.output == "yaml":
        write(to_yaml(msgspec.to_builtins(document), sort_keys=False))
    else:
        print_lines(message_lines(document, wide=options.wide or options.output == "wide"))
    return 0


def _from_input() -> str:
    """Return standard input, one character more than is read at most, so that a longer text shows as cut."""
    # UTF-8 has at most four bytes a character.
    return sys.stdin.buffer.read(4 * (MOST_CHARACTERS + 1)).decode("utf-8", "replace")
