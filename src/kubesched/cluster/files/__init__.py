"""Objects from and to files: manifests, dumps of a real cluster, saved clusters."""

from .absent_owners import absent_owners_remark, with_marks
from .dump_import import IMPORTED_KINDS, Import, import_dump, import_manifests
from .manifests import Manifest, ManifestError, Manifests, load_manifests, object_manifests, parse_manifests, read_text
from .snapshot_file import Snapshot, SnapshotError, is_saved_cluster, newest_moment, read, save, saving
from .workloads import expand_workloads

__all__ = [
    "IMPORTED_KINDS",
    "Import",
    "Manifest",
    "ManifestError",
    "Manifests",
    "Snapshot",
    "SnapshotError",
    "absent_owners_remark",
    "expand_workloads",
    "import_dump",
    "import_manifests",
    "is_saved_cluster",
    "load_manifests",
    "newest_moment",
    "object_manifests",
    "parse_manifests",
    "read",
    "read_text",
    "save",
    "saving",
    "with_marks",
]
