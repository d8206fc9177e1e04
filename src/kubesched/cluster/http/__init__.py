"""HTTP interface of the embedded cluster: kube-apiserver's, for kubectl, client libraries and schedulers.

``server`` listens, ``dispatch`` routes, ``reading`` and ``writing`` carry out; ``catalog`` knows the resources,
``tables`` their forms. Needs the ``server`` extra (aiohttp).
"""

from kubesched.base.extras import needing

with needing("the API server of an embedded cluster", "server"):
    from .access_files import KUBECONFIG_NAME, CertificateFiles, make_certificates, write_kubeconfig
    from .bodies import PROTOBUF, decode_body
    from .origins import Origins, is_loopback
    from .published import publish_address
    from .server import HttpServer

__all__ = [
    "KUBECONFIG_NAME",
    "PROTOBUF",
    "CertificateFiles",
    "HttpServer",
    "Origins",
    "decode_body",
    "is_loopback",
    "make_certificates",
    "publish_address",
    "write_kubeconfig",
]
