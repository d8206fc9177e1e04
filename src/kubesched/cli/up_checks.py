"""Checks of the options of ``kubesched up``, before anything is built: files that would be lost, and access without protection."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from kubesched.api.yamltext import read_single
from kubesched.base.small_file import read_small_file
from kubesched.cluster.http import KUBECONFIG_NAME, Origins, is_loopback

from .errors import CliError
from .saved_file import refuse_missing_directory

__all__ = ["check_access", "check_files"]


def check_files(options: argparse.Namespace) -> None:
    """Refuse names of output files that could not be written in the end."""
    if options.snapshot == "":
        raise CliError("--snapshot: the name of the file is empty", code=2)
    if options.snapshot and os.path.realpath(options.snapshot) == os.path.realpath(options.kubeconfig_out):
        raise CliError(f"--snapshot and --kubeconfig-out are both {options.snapshot}; give two names", code=2)
    if options.tls_ca is not None and options.tls_cert is None:
        raise CliError(
            f"--tls-ca {options.tls_ca}: belongs to a certificate; give --tls-cert and --tls-key too", code=2
        )
    _check_kubeconfig(options.kubeconfig_out)


def check_access(options: argparse.Namespace) -> None:
    """Refuse to serve other machines without protection, which may be an accident."""
    if options.token is None and not options.insecure_without_token and not is_loopback(options.host):
        raise CliError(
            f"--host {options.host}: other machines can reach it, and without a token every client has all permissions; "
            "add --token --tls, or insist with --insecure-without-token",
            code=2,
        )
    try:
        Origins(options.host, options.allowed_host)
    except ValueError as error:
        raise CliError(f"--allowed-host {error}", code=2) from None


def _check_kubeconfig(given: str) -> None:
    """Refuse to overwrite a file that no ``kubesched up`` wrote: it may be the user's access to real clusters."""
    path = Path(given)
    if path.is_dir():
        raise CliError(f"--kubeconfig-out {given}: is a directory; give the name of a file")
    refuse_missing_directory(given, "--kubeconfig-out")
    try:
        text = read_small_file(path) if path.is_file() else b""
    except FileNotFoundError:
        return
    except OSError as error:
        raise CliError(f"--kubeconfig-out {given}: cannot be written: {error.strerror or error}") from None
    try:
        data = read_single(text, "kubeconfig") if text.strip() else {"clusters": []}
        names = [cluster["name"] for cluster in data["clusters"]]
    except (ValueError, TypeError, KeyError):
        names = ["?"]
    if set(names) - {KUBECONFIG_NAME}:
        found = "something that is no kubeconfig" if names == ["?"] else f"a kubeconfig of {', '.join(map(str, names))}"
        raise CliError(f"--kubeconfig-out {given}: holds {found}, which is not overwritten; give another name")
