"""HTTP extenders: messages (:mod:`.messages`), TLS (:mod:`.tls`) and calls over HTTP (:mod:`.http`).

:func:`.http.http_extenders` makes them from the configuration; the commands hand them to the scheduler. The scheduler
knows them as :class:`kubesched.scheduler.extenders.interface.Extender`.
"""
