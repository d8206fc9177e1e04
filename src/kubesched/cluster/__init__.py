"""The embedded cluster: an API server's store and HTTP interface, and hollow nodes, in one process.

Each sub-package has one public module, its ``__init__``; lower ones know nothing of higher ones:

``http``                requests of kubectl and client libraries
``kubelets``            hollow nodes and the pods on them: clients of the store
``store``               the objects: versions, watches, deletion, quotas; the in-process transport
``admission``           defaults, validation, admission and limits
``schema``              what an object is made of: fields, forms, bytes, patches

Nothing here knows the scheduler, nor :mod:`kubesched.cluster.controllers`, which are clients of any API server, nor
:mod:`kubesched.cluster.files`.
"""
