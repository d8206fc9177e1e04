"""``kubesched completion``: scripts for bash, zsh and fish, made from the arguments of every command.

The scripts complete commands, options and choices. The shell itself completes values that are files.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

from .console import write

__all__ = ["run"]


class _Command(NamedTuple):
    """Command, with the words that may follow: options with their help and choices, and choices of arguments."""

    words: tuple[str, ...]
    about: str
    options: dict[str, tuple[str, tuple[str, ...]]]
    arguments: tuple[str, ...]


def run(options: argparse.Namespace) -> int:
    from .main import build_parser  # noqa: PLC0415 - main imports the commands

    commands = list(_commands(build_parser()))
    write({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](commands))
    return 0


def _commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), about: str = "") -> Iterator[_Command]:
    options: dict[str, tuple[str, tuple[str, ...]]] = {}
    arguments: list[str] = []
    below: list[_Command] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            for name, each in action.choices.items():
                below += _commands(each, (*words, name), helps.get(name, ""))
            arguments += choices
        elif action.option_strings:
            text = re.sub(r"\s+", " ", (action.help or "") % {"default": action.default, "prog": "kubesched"})
            options |= dict.fromkeys(action.option_strings, (text, choices))
        else:
            arguments += choices
    yield _Command(words, about, options, tuple(arguments))
    yield from below


def _bash(commands: list[_Command]) -> str:
    """Return a function that finds the command among the words typed so far, and offers the words that may follow."""
    cases = []
    for command in commands:
        path = " ".join(command.words)
        words = " ".join((*command.arguments, *command.options))
        cases.append(f"    '{path}') words='{words}';;")
    values = {}
    for command in commands:
        for option, (_, choices) in command.options.items():
            if choices:
                values[f"{' '.join(command.words)} {option}".strip()] = " ".join(choices)
    chosen = [f"    '{key}') words='{words}';;" for key, words in values.items()]
    paths = " ".join(f"'{' '.join(command.words)}'" for command in commands if command.words)
    return f"""\
# bash completion of kubesched
_kubesched() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path= words= word known
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    for known in {paths}; do
      if [[ "${{path:+$path }}$word" == "$known" ]]; then path=$known; break; fi
    done
  done
  COMPREPLY=()
  case "${{path:+$path }}$previous" in
{chr(10).join(chosen)}
  esac
  if [[ -z $words ]]; then case "$path" in
{chr(10).join(cases)}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kubesched kubesched
"""


def _zsh(commands: list[_Command]) -> str:
    """Return bash's function, which zsh can run."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"


def _fish(commands: list[_Command]) -> str:
    """Return a line for each command and option, with its help."""
    lines = ["# fish completion of kubesched"]
    for command in commands:
        where = f"__fish_seen_subcommand_from {command.words[-1]}" if command.words else "__fish_use_subcommand"
        below = [one for one in commands if one.words[:-1] == command.words and one.words]
        lines += [f"complete -c kubesched -f -n '{where}' -a {one.words[-1]} -d {_quoted(one.about)}" for one in below]
        plain = [name for name in command.arguments if name not in {one.words[-1] for one in below}]
        if plain:
            lines.append(f"complete -c kubesched -f -n '{where}' -a '{' '.join(plain)}'")
        for name, (text, choices) in command.options.items():
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            values = f" -x -a '{' '.join(choices)}'" if choices else ""
            lines.append(f"complete -c kubesched -n '{where}' {flag}{values} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
