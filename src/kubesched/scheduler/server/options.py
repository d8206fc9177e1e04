"""Options of the HTTPS server, as the flags of secure serving, authentication and authorization give them.

Caller: the command line, or another program that assembles a server. Source: rules/configuration §7.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ALWAYS_ALLOW_PATHS",
    "AuthenticationOptions",
    "AuthorizationOptions",
    "ServingError",
    "ServingOptions",
    "SniPair",
]

#: Default of ``--authorization-always-allow-paths``.
ALWAYS_ALLOW_PATHS = ("/healthz", "/readyz", "/livez")


class ServingError(RuntimeError):
    """The server cannot be set up: because of a file, an address, a value. The message is meant for the user."""


@dataclass(frozen=True, slots=True)
class SniPair:
    """Value of ``--tls-sni-cert-key``: files, and the host patterns that they serve (none: the names in the
    certificate).
    """

    cert_file: Path
    key_file: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Options of the listener: address, port and certificates.

    ``port`` 0 takes a free port; the caller treats ``--secure-port 0`` as "no server". ``cert_dir`` None keeps a
    self-signed certificate in memory. ``min_tls_version`` and ``cipher_suites`` are names as the flags take them
    (``VersionTLS12``, ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``), ``curve_preferences`` numbers. Files are checked
    every ``reload_seconds``. Open requests may continue for ``shutdown_seconds`` at the end.
    """

    bind_address: str = "0.0.0.0"
    port: int = 10259
    cert_dir: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sni: tuple[SniPair, ...] = ()
    min_tls_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()
    permit_address_sharing: bool = False
    permit_port_sharing: bool = False
    reload_seconds: float = 10.0
    shutdown_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """Options of authentication. Header names are compared without case.

    CAs that are not given as files are read from the configmap ``kube-system/extension-apiserver-authentication``,
    unless ``skip_lookup``.
    """

    client_ca_file: Path | None = None
    requestheader_client_ca_file: Path | None = None
    requestheader_allowed_names: tuple[str, ...] = ()
    requestheader_username_headers: tuple[str, ...] = ("x-remote-user",)
    requestheader_group_headers: tuple[str, ...] = ("x-remote-group",)
    requestheader_uid_headers: tuple[str, ...] = ()
    #: Feature gate RemoteRequestHeaderUID: without it, configured UID headers are ignored.
    believe_uid_headers: bool = True
    requestheader_extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    token_cache_ttl: float = 10.0


@dataclass(frozen=True, slots=True)
class AuthorizationOptions:
    """Options of authorization: paths that need none, and the seconds for which reviews are cached.

    A path may lack its leading slash; a trailing ``*`` makes it a prefix.
    """

    always_allow_paths: tuple[str, ...] = ALWAYS_ALLOW_PATHS
    allow_cache_ttl: float = 10.0
    deny_cache_ttl: float = 10.0
