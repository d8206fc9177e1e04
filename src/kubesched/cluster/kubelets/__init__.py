"""Hollow nodes: Node objects, heartbeats, and pods that run by stage rules."""

from .entries import Entry
from .hollow import DURATION, FAILED, RUN_BY, HollowKubelets
from .nodes import make_nodes, node_template, zone_names
from .pod_status import pod_ip, ready_condition
from .prerequisites import attachment_name, claim_names
from .stages import Stage, StageError, choose, default_stages, job_end, load_stages, rules_of
from .watch_cache import Handler, Problems, WatchCache
