"""Files that the dashboard shows: what a file is, and the source over it.

    result of a simulation (JSON or YAML) ──▶ :mod:`.recordings`     file of decisions ──▶ :mod:`.recordings`
    saved cluster, dump ──▶ :mod:`.standing`

Any of them may be gzipped. Caller: ``kubesched view``.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from kubesched.api.documents import TextError
from kubesched.api.yamltext import read_single
from kubesched.cluster.files import ManifestError, Manifests, read_text
from kubesched.explain.records.reading import is_decision_file
from kubesched.lab.simulate.inputs.given import cluster_of
from kubesched.lab.simulate.results.result import Result
from kubesched.scheduler.config import FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from .recordings.of_decisions import recording_of_decisions
from .recordings.of_result import recording_of_result
from .recordings.recording import Recording
from .recordings.replayed import ReplayedReasons
from .recordings.source import RecordingSource
from .recordings.timeline import RecordingError

__all__ = ["EXPECTED", "ShownFile", "kind_of_file", "read_cluster", "recording_of"]

#: Files that can be shown, in words.
EXPECTED: Final = (
    "a result of kubesched simulate -o json, a file of --decisions, a saved cluster (--snapshot, --save-cluster, import) "
    "or a dump (kubectl get -o yaml)"
)
ShownFile: TypeAlias = Literal["result", "decisions", "cluster"]

_RESULT: Final = b"SimulationResult"
#: Bytes at the beginning of a file among which the kind of a result is looked for.
_HEAD: Final = 400
_GZIP: Final = b"\x1f\x8b"
#: Most bytes of a result or a cluster, unpacked, and bytes that are unpacked at a time.
_MOST_BYTES: Final = 2 << 30
_PIECE: Final = 1 << 20


def kind_of_file(path: Path) -> ShownFile:
    """Return what a file is, by its beginning.

    Raises:
        ManifestError: when it cannot be read.
    """
    if path.is_dir():
        raise ManifestError(f"{path}: is a directory; expected {EXPECTED}")
    if path.exists() and not path.is_file():
        raise ManifestError(f"{path}: is a pipe or a device, which has no bound; save it to a file first")
    try:
        if is_decision_file(path):
            return "decisions"
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as opened:
            head = opened.read(_HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise ManifestError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not head.strip():
        raise ManifestError(f"{path}: is empty; expected {EXPECTED}")
    return "result" if _RESULT in head else "cluster"


def recording_of(
    path: Path,
    kind: ShownFile,
    number: int,
    setup: tuple[Registry, KubeSchedulerConfiguration, FeatureGates],
    stack: AsyncExitStack,
) -> RecordingSource:
    """Return the source over a result or a file of decisions; ``stack`` ends what belongs to it.

    Raises:
        ManifestError: when the file is damaged, or cannot be shown.
        DecisionsError: when it is a damaged file of decisions.
        ConfigError: when a profile of the configuration cannot be built.
    """
    try:
        if kind == "result":
            recording = recording_of_result(_result(path), str(path))
        else:
            recording = _of_decisions(path, setup, stack)
    except RecordingError as error:
        raise ManifestError(f"{path}: cannot be shown: {error}") from None
    return RecordingSource(recording, number)


def _of_decisions(
    path: Path, setup: tuple[Registry, KubeSchedulerConfiguration, FeatureGates], stack: AsyncExitStack
) -> Recording:
    registry, config, gates = setup
    reasons = ReplayedReasons(path, config, registry, gates)
    stack.callback(reasons.close)
    return recording_of_decisions(path, reasons, reasons.profiles())


def _result(path: Path) -> Result:
    _check_size(path)
    text = read_text(path)
    try:
        if text.lstrip()[:1] == "{":
            return msgspec.json.decode(text, type=Result)
        return msgspec.convert(read_single(text, str(path)), Result)
    except (msgspec.DecodeError, TextError, RecursionError) as error:
        what = "is cut short" if "truncated" in str(error) else "is no result of kubesched simulate -o json or yaml"
        raise ManifestError(f"{path}: {what}: {error}") from None


def _check_size(path: Path) -> None:
    """Refuse a file that is too large, unpacked.

    Raises:
        ManifestError: if it is.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    size = 0
    try:
        if packed:
            with gzip.open(path) as unpacked:
                while size <= _MOST_BYTES and (piece := unpacked.read(_PIECE)):
                    size += len(piece)
        else:
            size = path.stat().st_size
    except (OSError, EOFError, zlib.error) as error:
        raise ManifestError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if size > _MOST_BYTES:
        raise ManifestError(
            f"{path}: has more than {_MOST_BYTES >> 20:,} MiB{' unpacked' if packed else ''}, which is the most"
        )


def read_cluster(path: Path) -> Manifests:
    """Return the objects of a saved cluster or a dump.

    Raises:
        ManifestError: when the file has none, or some cannot be used.
    """
    _check_size(path)
    found = cluster_of(str(path), deleting=True)
    if found.problems:
        raise ManifestError(*found.problems, f"{path}: expected {EXPECTED}")
    if not found.objects:
        raise ManifestError(f"{path}: has nothing to show; expected {EXPECTED}")
    return found
