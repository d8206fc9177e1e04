"""Options of the HTTPS server and its metrics page, from the flags of ``kubesched run``."""

from __future__ import annotations

import logging
from pathlib import Path

from kubesched.api.yamltext import TextError, read_single
from kubesched.base.small_file import read_small_file
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.server import AuthenticationOptions, Exposition, ProcessMetrics, ServingOptions, SniPair

from .flagset import Flags
from .options import OptionsError

__all__ = ["authentication_of", "exposition_of", "serving_of"]

_log = logging.getLogger("kubesched.run")


def exposition_of(flags: Flags, process: ProcessMetrics, scheduler: SchedulerMetrics) -> Exposition:
    """Return the content of ``/metrics``.

    Raises:
        OptionsError: if the manifest of allowed labels cannot be used.
    """
    allowed = {key: values.split(",") for key, values in flags["allow-metric-labels"].items()}
    if path := flags["allow-metric-labels-manifest"]:
        allowed = {**_label_manifest(path), **allowed}
    exposition = Exposition(process, scheduler, allowed_labels=allowed, disabled=flags["disabled-metrics"])
    for name in exposition.unknown:
        _log.warning("--disabled-metrics or --allow-metric-labels names %s, which is not a metric", name)
    return exposition


def _label_manifest(path: str) -> dict[str, list[str]]:
    try:
        data = read_single(read_small_file(path), "label manifest")
    except OSError as error:
        raise OptionsError(f"--allow-metric-labels-manifest {path}: {error.strerror or error}", logged=True) from None
    except TextError as error:
        raise OptionsError(error.in_file(path), logged=True) from None
    mapping = data.get("allowListMapping") if isinstance(data, dict) else None
    if not isinstance(mapping, dict):
        raise OptionsError(f"{path}: allowListMapping: must map metric,label to values", logged=True)
    return {str(key): str(values).split(",") for key, values in mapping.items()}


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def serving_of(flags: Flags) -> ServingOptions:
    """Return the address and the certificates of the listener."""
    pairs = []
    for text in flags["tls-sni-cert-key"]:
        files, _, names = text.partition(":")
        cert, key = files.split(",")
        pairs.append(SniPair(Path(cert), Path(key), tuple(name for name in names.split(",") if name)))
    return ServingOptions(
        bind_address=flags["bind-address"],
        port=flags["secure-port"],
        cert_dir=_path(flags["cert-dir"]),
        cert_file=_path(flags["tls-cert-file"]),
        key_file=_path(flags["tls-private-key-file"]),
        sni=tuple(pairs),
        min_tls_version=flags["tls-min-version"] or "VersionTLS12",
        cipher_suites=flags["tls-cipher-suites"],
        curve_preferences=flags["tls-curve-preferences"],
        permit_address_sharing=flags["permit-address-sharing"],
        permit_port_sharing=flags["permit-port-sharing"],
    )


def authentication_of(flags: Flags, gates: FeatureGates) -> AuthenticationOptions:
    """Return the rules by which clients are authenticated."""
    return AuthenticationOptions(
        client_ca_file=_path(flags["client-ca-file"]),
        requestheader_client_ca_file=_path(flags["requestheader-client-ca-file"]),
        requestheader_allowed_names=flags["requestheader-allowed-names"],
        requestheader_username_headers=flags["requestheader-username-headers"],
        requestheader_group_headers=flags["requestheader-group-headers"],
        requestheader_uid_headers=flags["requestheader-uid-headers"],
        believe_uid_headers=gates.enabled("RemoteRequestHeaderUID"),
        requestheader_extra_headers_prefix=flags["requestheader-extra-headers-prefix"],
        skip_lookup=flags["authentication-skip-lookup"],
        tolerate_lookup_failure=flags["authentication-tolerate-lookup-failure"],
        token_cache_ttl=flags["authentication-token-webhook-cache-ttl"].seconds,
    )
