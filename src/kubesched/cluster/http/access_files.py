"""Files by which clients find and trust the server: a kubeconfig, and a throw-away certificate authority.

The user may give certificates as files instead. Caller: the command line, which writes the kubeconfig when the server
knows its port.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kubesched.api.yamltext import to_yaml
from kubesched.base.certificates import self_signed
from kubesched.base.small_file import read_small_file
from kubesched.base.times import Clock
from kubesched.base.whole_file import write_file

__all__ = ["KUBECONFIG_NAME", "CertificateFiles", "make_certificates", "write_kubeconfig"]

KUBECONFIG_NAME = "kubesched"


def write_kubeconfig(
    path: str | Path, url: str, token: str | None = None, ca: str | Path | bytes | None = None
) -> Path:
    """Write a kubeconfig that points at ``url``; readable by its owner only.

    ``ca`` is the certificate authority to trust: a file, or its PEM bytes. Without ``ca``, an ``https`` address is
    verified against the system's authorities. kubectl and Go clients send ``token`` to ``https`` addresses only.
    Without a token a user is named, because kubectl asks for one at ``https`` addresses; the server ignores it.

    Raises:
        OSError: when the file cannot be written or the CA file not be read.
    """
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        pem = ca if isinstance(ca, bytes) else read_small_file(ca)
        cluster["certificate-authority-data"] = base64.b64encode(pem).decode()
    if url.startswith("http://"):
        cluster["insecure-skip-tls-verify"] = True  # without TLS; the JavaScript client requires it
    used = {"cluster": KUBECONFIG_NAME, "user": KUBECONFIG_NAME}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": KUBECONFIG_NAME, "cluster": cluster}],
        "users": [{"name": KUBECONFIG_NAME, "user": {"token": token} if token else {"username": KUBECONFIG_NAME}}],
        "contexts": [{"name": KUBECONFIG_NAME, "context": {**used, "namespace": "default"}}],
        "current-context": KUBECONFIG_NAME,
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_file(path, to_yaml(config, sort_keys=False).encode(), private=True)
    return Path(path)


class CertificateFiles(NamedTuple):
    """Paths of three files: the authority's certificate, the server's certificate, and the server's key."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(
    directory: str | Path, clock: Clock, hosts: Sequence[str] = ("localhost", "127.0.0.1"), *, days: int = 365
) -> CertificateFiles:
    """Make an authority, and a certificate for ``hosts``, valid from an hour ago for ``days``.

    Raises:
        RuntimeError: when ``cryptography`` is not installed, saying what to do instead.
    """
    made = self_signed(clock.now(), hosts, days=days)
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(place / "ca.crt", place / "server.crt", place / "server.key")
    write_file(files.ca, made.ca)
    write_file(files.cert, made.chain)
    write_file(files.key, made.key, private=True)
    return files
