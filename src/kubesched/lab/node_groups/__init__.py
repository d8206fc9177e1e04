"""Node groups: kinds of nodes that can be had, with their numbers and prices, from a file or an autoscaler's settings."""

from .autoscaler import groups_of_flags
from .catalogue import Catalogue, Offer, read_catalogue
from .file import read_node_groups
from .group import MOST_NODES, NodeGroup, members, with_models

__all__ = [
    "MOST_NODES",
    "Catalogue",
    "NodeGroup",
    "Offer",
    "groups_of_flags",
    "members",
    "read_catalogue",
    "read_node_groups",
    "with_models",
]
