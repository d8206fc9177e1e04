"""HTTP extenders: messages (:mod:`.messages`), TLS (:mod:`.tls`), and the conversation (:mod:`.http`).

Made from the configuration by :func:`.http.http_extenders`, and handed to the scheduler by the commands. The scheduler
knows them as :class:`kubesched.scheduler.extenders.interface.Extender`.
"""
