"""Conversion to v1 of older configuration versions, the Policy API and the names of retired plugins.

``load`` is the entry point. :mod:`kubesched.scheduler.config.load` reads v1 itself and knows nothing of this package.
"""

from .convert import Converted
from .load import (
    POLICY_CONFIG_MAP_KEY,
    SPREAD_GATE,
    load_any,
    load_any_file,
    load_any_with_api,
)
from .retired_args import RETIRED_ARGS, RETIRED_PLUGINS, retired_args

__all__ = [
    "POLICY_CONFIG_MAP_KEY",
    "RETIRED_ARGS",
    "RETIRED_PLUGINS",
    "SPREAD_GATE",
    "Converted",
    "load_any",
    "load_any_file",
    "load_any_with_api",
    "retired_args",
]
