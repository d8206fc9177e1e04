"""SSL context of one extender, from its TLS settings.

Source: rules/framework §8.1, rules/configuration §5.
"""

from __future__ import annotations

import ssl

from kubesched.base.certificates import load_pair
from kubesched.base.followed_files import FollowedContext
from kubesched.base.small_file import read_small_file

from ..config import ConfigError, Extender, ExtenderTLSConfig

__all__ = ["tls_context"]


def tls_context(config: Extender) -> FollowedContext:
    """Return a context that follows its files. Certificates in the configuration win over files.

    With ``enableHTTPS`` but without any authority, the server's certificate is not verified, as upstream.

    Raises:
        ConfigError: stage ``framework``, with the extender's URL, when the settings cannot be used.
    """
    tls = config.tls_config or ExtenderTLSConfig()
    named = ((tls.ca_data, tls.ca_file), (tls.cert_data, tls.cert_file), (tls.key_data, tls.key_file))
    return FollowedContext(lambda: _context(config, tls), lambda: [path for data, path in named if not data])


def _context(config: Extender, tls: ExtenderTLSConfig) -> ssl.SSLContext:
    authority = _content(config, "caFile", tls.ca_file, tls.ca_data)
    chain = _content(config, "certFile", tls.cert_file, tls.cert_data)
    key = _content(config, "keyFile", tls.key_file, tls.key_data)
    if authority and tls.insecure:
        text = "couldn't build extenders: specifying a root certificates file with the insecure flag is not allowed"
        raise ConfigError("framework", [text])
    context = ssl.create_default_context()
    if tls.insecure or (config.enable_https and not authority):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if authority:
            context = ssl.create_default_context(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise _problem(config, f"the authority (caData or caFile) is no PEM certificate: {error}") from None
    if bool(chain) != bool(key):
        raise _problem(config, "a client certificate and its key are needed together (certData and keyData, or files)")
    if chain:
        try:
            load_pair(context, chain, key)
        except (ssl.SSLError, ValueError) as error:
            raise _problem(config, f"the client certificate and its key cannot be used: {error}") from None
    return context


def _content(config: Extender, field: str, path: str, data: bytes) -> bytes:
    if data or not path:
        return data
    try:
        return read_small_file(path)
    except OSError as error:
        raise _problem(config, f"{field}: open {path}: {(error.strerror or str(error)).lower()}") from None


def _problem(config: Extender, text: str) -> ConfigError:
    return ConfigError("framework", [f"couldn't build extenders: {config.url_prefix}: tlsConfig: {text}"])
