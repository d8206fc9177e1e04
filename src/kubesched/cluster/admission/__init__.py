"""What happens to an object before it is stored: defaults, validation, admission and limits."""

from .admission import SYSTEM_PRIORITIES, Admission
from .custom import unknown_fields, usable_schema
from .kind_defaults import default_kind
from .kind_validation import check_kind
from .label_keys import merge_label_keys
from .limits import Limits, show_amount
from .metadata import SERVER_FIELDS, STATUS_KINDS, changed_metadata, check_preconditions, new_metadata
from .services import ServiceAddresses
from .updates import checked_spec_change
from .validation import Causes, check_metadata, forbidden

__all__ = [
    "SERVER_FIELDS",
    "STATUS_KINDS",
    "SYSTEM_PRIORITIES",
    "Admission",
    "Causes",
    "Limits",
    "ServiceAddresses",
    "changed_metadata",
    "check_kind",
    "check_metadata",
    "check_preconditions",
    "checked_spec_change",
    "default_kind",
    "forbidden",
    "merge_label_keys",
    "new_metadata",
    "show_amount",
    "unknown_fields",
    "usable_schema",
]
