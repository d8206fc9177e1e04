"""The HTTP face of the embedded cluster: what kube-apiserver shows to kubectl, client libraries and schedulers.

``server`` listens, ``dispatch`` routes, ``reading``, ``watching`` and ``writing`` carry out; ``catalog`` knows the
resources, ``schema`` their fields, ``columns`` their tables. Needs the ``server`` extra (aiohttp).
"""

from .certificates import CertificateFiles, make_certificates
from .kubeconfig import write_kubeconfig
from .server import HttpServer

__all__ = ["CertificateFiles", "HttpServer", "make_certificates", "write_kubeconfig"]
