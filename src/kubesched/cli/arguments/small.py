"""Arguments of the small commands: the demonstration, the examples, and those that show or check one thing."""

from __future__ import annotations

import argparse

from .options import enable_plugin, json_output, plugin_modules
from .values import positive

__all__ = ["completion", "config", "demo", "examples", "plugins", "version"]


def demo(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Show what kubesched does, in under a minute: a cluster of hollow nodes, workloads from ordinary manifests being
placed in real time, a summary, a pending pod explained, and a ten-line plugin that changes the outcome."""
    parser.add_argument("--nodes", metavar="N", type=positive, default=1000, help="(default: 1000)")
    parser.add_argument("--seed", metavar="S", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="no pauses for reading")


def examples(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Copy the examples, which are part of every installation, to a folder: manifests, configurations, plugins, policies and
notebooks. The documentation names them as examples/..."""
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="examples", help="a new folder (default: examples)"
    )


def config(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="load and validate a file, and print the plugins in effect per profile",
        description="Load and validate a KubeSchedulerConfiguration (of any version, or a Policy), and print the plugins "
        "in effect per profile.",
    )
    check.add_argument("file", metavar="FILE")
    json_output(check, "the plugins in effect as JSON")
    plugin_modules(check)
    enable_plugin(check)
    convert = actions.add_parser(
        "convert",
        help="write a file of any version, or a Policy, as today's v1",
        description="Write a KubeSchedulerConfiguration of any version, or a Policy, as YAML of version v1 with every "
        "default filled in. Replaced and ignored parts are named in warnings on stderr.",
    )
    convert.add_argument("file", metavar="FILE")
    convert.add_argument("-o", "--output", metavar="FILE", help="new file to write (default: standard output)")
    convert.add_argument("--overwrite", action="store_true", help="overwrite an existing file, even FILE itself")


def plugins(parser: argparse.ArgumentParser) -> None:
    plugin_modules(parser)
    json_output(parser, "the list as JSON")


def completion(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a script that completes commands and options in a shell."
    parser.epilog = """\
examples: source <(kubesched completion bash)
          source <(kubesched completion zsh)
          kubesched completion fish >~/.config/fish/completions/kubesched.fish"""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def version(parser: argparse.ArgumentParser) -> None:
    json_output(parser, "as JSON")
