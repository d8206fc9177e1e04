"""TLS contexts of the listener: the certificate that clients see, and the authorities whose client certificates are
accepted.

    files ──reload──▶ one context per certificate ──▶ chosen per connection by the name the client asks for

A listener cannot change its own context. So the listener's context only chooses, at each handshake, one of the contexts
made from the files that were read last. Certificates and authorities therefore change without a restart. Caller:
:mod:`.server`.

The ssl module verifies client certificates only in the handshake. So a certificate that no authority signed ends the
handshake, where upstream answers 401 (``docs/differences.md``).
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubesched.base.certificates import load_pair, self_signed
from kubesched.base.extras import how_to_install
from kubesched.base.small_file import read_small_file
from kubesched.base.times import Clock
from kubesched.base.whole_file import write_file

from .options import ServingError, ServingOptions

__all__ = ["PeerCertificate", "TlsContexts", "certificates_in", "peer_certificate"]

_log = logging.getLogger("kubesched.scheduler.server")

_VERSIONS: Final = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
#: Cipher suites of TLS 1.2 by their registered names. Suites of TLS 1.3 cannot be chosen, here as upstream.
_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
_TLS13_CIPHERS: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_CURVES: Final = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s*(.*?)\s*-----END CERTIFICATE-----", re.DOTALL)
_RSA_BITS: Final = 2048


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """Contents of a client's verified certificate. ``chain`` is DER, leaf first, up to the authority that signed it."""

    common_name: str
    organizations: tuple[str, ...]
    not_after: float
    chain: tuple[bytes, ...]


def certificates_in(pem: bytes) -> frozenset[bytes]:
    """Return the certificates of a PEM bundle, as DER.

    Raises:
        ValueError: when there is no certificate, or one is not base64.
    """
    try:
        found = frozenset(base64.b64decode(b"".join(body.split()), validate=True) for body in _PEM.findall(pem))
    except binascii.Error:
        raise ValueError("a certificate is not valid base64") from None
    if not found:
        raise ValueError("there is no PEM certificate in it")
    return found


def peer_certificate(connection: Any) -> PeerCertificate | None:
    """Return the client's certificate on a connection (an ``ssl.SSLObject``), or None when it showed none."""
    details = connection.getpeercert() if connection is not None else None
    if not details:
        return None
    subject = [pair for part in details.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    return PeerCertificate(
        names[-1] if names else "",
        tuple(value for key, value in subject if key == "organizationName"),
        float(ssl.cert_time_to_seconds(details["notAfter"])),
        _verified_chain(connection),
    )


def _verified_chain(connection: Any) -> tuple[bytes, ...]:
    """Return the verified chain. The method is public since Python 3.13; before, the inner object has it."""
    if hasattr(connection, "get_verified_chain"):
        return tuple(connection.get_verified_chain())
    inner = connection._sslobj.get_verified_chain() or ()
    return tuple(ssl.PEM_cert_to_DER_cert(item.public_bytes()) for item in inner)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Certificate and its key, and where they came from."""

    source: str
    chain: bytes
    key: bytes
    names: tuple[str, ...] = ()


class TlsContexts:
    """Current TLS contexts. ``listening`` is for the listener.

    Raises:
        ServingError: for files that cannot be read or do not belong together, and unknown versions and ciphers.
    """

    def __init__(self, options: ServingOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        if (options.cert_file is None) is not (options.key_file is None):
            raise ServingError("tls-cert-file and tls-private-key-file must be specified together")
        self._self_signed: _Pair | None = None
        self._authorities = b""
        self._settings()  # unknown names are refused before any file is read
        if len(options.curve_preferences) > 1:
            _log.warning(
                "tls-curve-preferences: only one curve can be chosen; several are ignored for the TLS library's list"
            )
        self._pairs = self._read()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._default = self._build()
        self.listening = self._blank()
        self.listening.sni_callback = self._choose

    # -- following changes ---------------------------------------------------------------------------------

    def trust(self, bundles: Iterable[bytes]) -> None:
        """Accept client certificates of these authorities (PEM); with none, clients are not asked for one.

        Raises:
            ServingError: when a bundle cannot be used; the earlier authorities stay.
        """
        before = self._authorities
        self._authorities = b"\n".join(bundles)
        try:
            self._default = self._build()
        except ServingError:
            self._authorities = before
            raise
        self.listening.verify_mode = self._default.verify_mode

    def reload(self) -> bool:
        """Read the files again. True if new connections see other certificates.

        Raises:
            ServingError: when the files cannot be used; the earlier certificates stay.
        """
        before, pairs = self._pairs, self._read()
        if pairs == before:
            return False
        self._pairs = pairs
        try:
            self._default = self._build()
        except ServingError:
            self._pairs = before
            raise
        _log.info("serving certificates changed: %s", ", ".join(pair.source for pair in pairs))
        return True

    def _choose(self, connection: Any, server_name: str | None, _: ssl.SSLContext) -> None:
        name = (server_name or "").lower().rstrip(".")
        wildcard = f"*.{name.partition('.')[2]}"
        connection.context = self._contexts.get(name) or self._contexts.get(wildcard) or self._default

    # -- certificates --------------------------------------------------------------------------------------

    def _read(self) -> tuple[_Pair, ...]:
        options = self._options
        if options.cert_file is not None and options.key_file is not None:
            first = _pair(options.cert_file, options.key_file)
        elif options.cert_dir is not None:
            first = self._in_directory(options.cert_dir)
        else:
            first = self._issued()
        return (first, *(_pair(item.cert_file, item.key_file, item.names) for item in options.sni))

    def _issued(self) -> _Pair:
        if self._self_signed is None:
            try:
                made = self_signed(self._clock.now(), rsa_bits=_RSA_BITS)
            except RuntimeError as error:
                raise ServingError(str(error)) from None
            self._self_signed = _Pair("self-signed, in memory", made.chain, made.key)
        return self._self_signed

    def _in_directory(self, directory: Path) -> _Pair:
        cert_file, key_file = directory / "kube-scheduler.crt", directory / "kube-scheduler.key"
        if not (cert_file.exists() and key_file.exists()):
            made = self._issued()
            try:
                directory.mkdir(parents=True, exist_ok=True)
                write_file(cert_file, made.chain)
                write_file(key_file, made.key, private=True)
            except OSError as error:
                raise ServingError(f"a self-signed certificate cannot be written to {directory}: {error}") from None
        return _pair(cert_file, key_file)

    # -- contexts ------------------------------------------------------------------------------------------

    def _settings(self) -> tuple[ssl.TLSVersion, str]:
        options = self._options
        version = _VERSIONS.get(options.min_tls_version)
        if version is None:
            known = ", ".join(_VERSIONS)
            raise ServingError(f'unknown tls version "{options.min_tls_version}": use one of {known}')
        ciphers = []
        for name in options.cipher_suites:
            if name in _CIPHERS:
                ciphers.append(_CIPHERS[name])
            elif name not in _TLS13_CIPHERS:
                raise ServingError(f"Cipher suite {name} not supported or doesn't exist")
        unknown = [number for number in options.curve_preferences if number not in _CURVES]
        if unknown:
            raise ServingError(f"curve {unknown[0]} is not supported: use one of {', '.join(map(str, _CURVES))}")
        return version, ":".join(ciphers)

    def _blank(self) -> ssl.SSLContext:
        """Make a context without certificates. Sessions are not resumed: they would outlive an authority."""
        version, ciphers = self._settings()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = version
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        if ciphers:
            context.set_ciphers(ciphers)
        curves = self._options.curve_preferences
        if len(curves) == 1:
            context.set_ecdh_curve(_CURVES[curves[0]])
        return context

    def _build(self) -> ssl.SSLContext:
        """Build the contexts for all pairs. The first one is for clients that name no other host."""
        contexts: dict[str, ssl.SSLContext] = {}
        from_certificates: dict[str, ssl.SSLContext] = {}
        default: ssl.SSLContext | None = None
        for pair in self._pairs:
            context = self._blank()
            try:
                load_pair(context, pair.chain, pair.key)
            except (ssl.SSLError, OSError) as error:
                raise ServingError(f"{pair.source}: the certificate and key cannot be used: {error}") from None
            if self._authorities:
                try:
                    context.load_verify_locations(cadata=self._authorities.decode("ascii"))
                except (ssl.SSLError, UnicodeDecodeError) as error:
                    raise ServingError(f"the client certificate authorities cannot be used: {error}") from None
                context.verify_mode = ssl.CERT_OPTIONAL
            if default is None:
                default = context
                continue
            for name in pair.names:
                contexts.setdefault(name.lower(), context)
            if not pair.names:
                for name in _names_in(pair):
                    from_certificates.setdefault(name.lower(), context)
        assert default is not None
        self._contexts = from_certificates | contexts
        return default


def _pair(cert_file: Path, key_file: Path, names: tuple[str, ...] = ()) -> _Pair:
    content = []
    for path in (cert_file, key_file):
        try:
            content.append(read_small_file(path))
        except OSError as error:
            raise ServingError(f"{path} cannot be read: {error.strerror or error}") from None
    return _Pair(str(cert_file), content[0], content[1], names)


def _names_in(pair: _Pair) -> list[str]:
    """Return the DNS names of a certificate, or its common name when it has none."""
    try:
        from cryptography import x509  # noqa: PLC0415 - an optional package
    except ImportError:
        text = f"{pair.source}: finding the host names of a certificate needs the package cryptography"
        raise ServingError(f"{text}: {how_to_install('run')}, or give the names") from None
    leaf = x509.load_pem_x509_certificate(pair.chain)
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return list(names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        found = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return [str(item.value) for item in found]
