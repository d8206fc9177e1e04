"""Files with a throw-away certificate authority and a server certificate.

Certificates of your own are given as files instead. Caller: the command line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...api.certificates import self_signed
from ...api.times import Clock

__all__ = ["CertificateFiles", "make_certificates"]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the three files are: the authority's certificate, the server's, and the server's key."""

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
    files.ca.write_bytes(made.ca)
    files.cert.write_bytes(made.chain)
    descriptor = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made.key)
    return files
