"""Steps that an object passes before it is stored: defaults, validation, admission and limits."""

from .admission import SYSTEM_PRIORITIES, Admission
from .custom import CustomSchema, unknown_fields, usable_schema
from .kinds import admit_new, check_kind, default_kind
from .limits import fill_container, show_amount
from .metadata import SERVER_FIELDS, STATUS_KINDS, changed_metadata, check_preconditions, new_metadata
from .services import ServiceAddresses
from .updates import checked_spec_change
from .validation import Causes, check_metadata, forbidden
