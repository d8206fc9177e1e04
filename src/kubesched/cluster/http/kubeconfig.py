"""A kubeconfig for ``kubectl`` and client libraries.

Caller: the command line, once the server knows its port.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from ...api.yamltext import to_yaml

__all__ = ["write_kubeconfig"]

KUBECONFIG_NAME = "kubesched"


def write_kubeconfig(
    path: str | Path, url: str, token: str | None = None, ca: str | Path | bytes | None = None
) -> Path:
    """Write a kubeconfig that points at ``url``; readable by its owner only.

    ``ca`` is the certificate authority to trust: a file, or its PEM bytes. Without one an ``https`` address is
    verified against the system's authorities. kubectl and Go clients send ``token`` to ``https`` addresses only.

    Raises:
        OSError: when the file cannot be written or the CA file not be read.
    """
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        pem = ca if isinstance(ca, bytes) else Path(ca).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(pem).decode()
    if url.startswith("http://"):
        cluster["insecure-skip-tls-verify"] = True  # there is no TLS; the JavaScript client insists on this being said
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": KUBECONFIG_NAME, "cluster": cluster}],
        "users": [{"name": KUBECONFIG_NAME, "user": {"token": token} if token else {}}],
        "contexts": [
            {
                "name": KUBECONFIG_NAME,
                "context": {"cluster": KUBECONFIG_NAME, "user": KUBECONFIG_NAME, "namespace": "default"},
            }
        ],
        "current-context": KUBECONFIG_NAME,
    }
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(to_yaml(config, sort_keys=False))
    place.chmod(0o600)
    return place
