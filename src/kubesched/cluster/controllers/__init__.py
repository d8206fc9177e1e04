"""Small controllers for the embedded cluster: they do what matters to scheduling.

They use :class:`kubesched.api.wire.Transport` only. :mod:`.manager` runs them, :mod:`.base` defines a controller,
:mod:`.context` holds the things that they share.
"""

from .attachments import Attachments
from .base import MOST_PODS, Controller
from .budgets import Budgets
from .context import ControllerSettings
from .daemon_sets import daemon_spec
from .deployments import replica_set_body
from .device_pools import DEVICES as DEVICES_ANNOTATION
from .device_pools import DevicesError, parse_devices
from .housekeeping import ABSENT_OWNER, COLLECTED, RootCertificates
from .job_groups import is_eligible
from .jobs import COMPLETION_INDEX, TRACKING, completed_indexes, finished_as, indexed_spec, job_labels
from .manager import ALL, BATCH, DEVICES, NODE_LIFE, STORAGE, ControllerManager
from .pods import pod_body

__all__ = [
    "ALL",
    "BATCH",
    "DEVICES",
    "NODE_LIFE",
    "STORAGE",
    "Attachments",
    "Budgets",
    "Controller",
    "ControllerManager",
    "ControllerSettings",
    "RootCertificates",
]
__all__ += ["ABSENT_OWNER", "COLLECTED", "DEVICES_ANNOTATION", "DevicesError", "parse_devices"]
__all__ += ["COMPLETION_INDEX", "TRACKING", "completed_indexes", "daemon_spec", "finished_as", "indexed_spec"]
__all__ += ["MOST_PODS", "is_eligible", "job_labels", "pod_body", "replica_set_body"]
