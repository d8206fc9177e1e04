"""The embedded cluster: an API server's store and HTTP interface, and hollow nodes, in one process.

Each sub-package has one public module, its ``__init__``. A package imports only from those below it::

    http        requests of kubectl and client libraries
    kubelets    hollow nodes and the pods on them: clients of the store
    store       the objects: versions, watches, deletion, quotas; the in-process transport
    admission   defaults, validation, admission and limits
    schema      the structure of objects: fields, forms, bytes, patches

None of these packages imports the scheduler, :mod:`kubesched.cluster.files` or :mod:`kubesched.cluster.controllers`.
The controllers are clients of any API server.
"""
