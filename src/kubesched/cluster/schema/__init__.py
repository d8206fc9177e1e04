"""What an object is made of: the fields of every kind, free-form checks, JSON bytes, patches."""

from .forms import check_form, check_metadata_form, check_type
from .objects import (
    NO_LABELS,
    Document,
    Stored,
    decode_document,
    drop_nulls,
    encode,
    encode_clean,
    has_condition,
    letters_of,
    new_uid,
    open_section,
    random_suffix,
    same_section,
)
from .patches import apply_json_patch, apply_merge_patch
from .rules import Condition, FieldRules, field_rules, fill_defaults, holders, members, parts, reaches, type_rules
from .schema import Field, Type, descriptions, patch_markers, root_type, types
from .stored_pods import StoredPod, stored
from .strategic import apply_strategic_patch, is_atomic, list_keys
from .versions import has_other_shape, served_form, stored_form

__all__ = [
    "NO_LABELS",
    "Condition",
    "Document",
    "Field",
    "FieldRules",
    "Stored",
    "StoredPod",
    "Type",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
    "check_form",
    "check_metadata_form",
    "check_type",
    "decode_document",
    "descriptions",
    "drop_nulls",
    "encode",
    "encode_clean",
    "field_rules",
    "fill_defaults",
    "has_condition",
    "has_other_shape",
    "holders",
    "is_atomic",
    "letters_of",
    "list_keys",
    "members",
    "new_uid",
    "open_section",
    "parts",
    "patch_markers",
    "random_suffix",
    "reaches",
    "root_type",
    "same_section",
    "served_form",
    "stored",
    "stored_form",
    "type_rules",
    "types",
]
