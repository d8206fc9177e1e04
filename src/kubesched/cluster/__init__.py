"""The embedded cluster: an API server's store and HTTP interface, hollow nodes, controllers and files, in one process.

Each sub-package has one public module, its ``__init__``; lower ones know nothing of higher ones:

``http``, ``files``     requests of kubectl and client libraries; manifests, dumps and saved clusters
``controllers``         Deployments, Jobs, volumes, node lifecycle ...: clients of the store
``kubelets``            hollow nodes and the pods on them: clients of the store
``store``               the objects: versions, watches, deletion, quotas; the in-process transport
``admission``           defaults, validation, admission and limits
``schema``              what an object is made of: fields, forms, bytes, patches

Nothing here knows the scheduler.
"""
