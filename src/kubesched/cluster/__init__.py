"""The embedded cluster: a store with watch, admission, hollow nodes and manifests, all in one process.

``store`` keeps the objects, ``inprocess`` offers them through :class:`kubesched.api.wire.Transport`,
``hollow`` runs pods without containers, ``manifests`` reads ordinary YAML. Nothing here knows the scheduler.
"""
