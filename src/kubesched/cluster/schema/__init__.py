"""Structure of objects: the fields of every kind, free-form checks, JSON bytes, patches."""

from .forms import QUANTITY_TEXT, check_form, check_metadata_form, check_type, undecodable
from .objects import (
    NO_LABELS,
    Document,
    Stored,
    decode_document,
    drop_nulls,
    encode,
    encode_clean,
    fnv_letters,
    has_condition,
    letters_of,
    new_uid,
    open_section,
    random_suffix,
    same_section,
)
from .patches import apply_json_patch, apply_merge_patch
from .rules import (
    Condition,
    FieldRules,
    drop_gated,
    field_rules,
    fill_defaults,
    holders,
    items_of,
    members,
    reaches,
    type_rules,
)
from .schema import Field, Type, descriptions, root_type, table_lines, types, unknown_members, unknown_paths
from .stored_pods import StoredPod, stored
from .strategic import apply_strategic_patch, is_atomic, list_keys, patch_markers
from .versions import has_other_shape, served_form, stored_form
