"""Replay of golden vectors, with counts of the records that agree.

Every vector is replayed as it is. A vector that differs is replayed again with each variant that :mod:`.variants`
offers for it; a variant under which every record agrees explains the difference. A vector that differs under all
variants has failed. Exception: if :mod:`.beyond` knows that its records depend on data that was not recorded, it is not
compared. An error in a vector is a failure of that vector; the rest of the file is still replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubesched.scheduler.framework.registry import Registry

from .beyond import beyond_comparison
from .bodies import compare_body
from .comparable import NotComparedError, gates_of
from .comparison import AreaResult, Comparison, Verdict
from .configs import compare_config
from .coverage import Coverage
from .files import BadLineError, area_of, read_vectors
from .group_api import compare_group_api
from .groups import compare_groups
from .hint_vectors import compare_hint
from .members import check_members
from .pods import replay_independent, replay_sequential, unchanged
from .variants import Variant, variants
from .world import AS_RECORDED, World

__all__ = ["replay_file", "replay_vector"]

JSON = dict[str, Any]


def replay_file(
    path: Path,
    registry: Registry,
    progress: Callable[[], None] = lambda: None,
    coverage: Coverage | None = None,
    gates: Mapping[str, Mapping[str, bool]] | None = None,
) -> AreaResult:
    """Replay every vector of a golden file. ``gates`` are further feature gates, by name of a vector.

    Raises:
        ValueError: when the file cannot be read to its end.
    """
    result = AreaResult(area_of(path))
    for number, vector in enumerate(read_vectors(path), 1):
        if isinstance(vector, BadLineError):
            failed = Comparison()
            failed.fail("vector", str(vector))
            result.add(f"line {number}", failed)
        else:
            name = vector.get("name")
            if gates and isinstance(name, str) and name in gates:
                vector["gates"] = {**vector.get("gates", {}), **gates[name]}
            comparison, verdict, why = replay_vector(vector, registry, coverage)
            result.add(name if isinstance(name, str) else f"line {number}", comparison, verdict, why)
        progress()
    return result


def replay_vector(
    vector: JSON, registry: Registry, coverage: Coverage | None = None
) -> tuple[Comparison, Verdict, str]:
    """Replay one vector. Returns the counts, the verdict, and the explanation if a variant agreed.

    Nothing is raised: a vector that cannot be replayed has failed.
    """
    if vector.get("mode") == "phases":
        return _replay_groups(vector, registry)
    comparison = _replay(vector, registry, None, coverage)
    if comparison.verdict is Verdict.FAILED and str(vector.get("mode")) in _PODS:
        try:
            world = World(vector["scenario"], registry, gates=gates_of(vector.get("gates", {})))
        except Exception:
            return comparison, comparison.verdict, ""  # the failure is that the scenario cannot be loaded
        for variant in variants(world):
            again = _replay(vector, registry, variant, None)
            if again.verdict is not Verdict.FAILED:
                return again, variant.verdict, variant.why
        if reason := beyond_comparison(world, vector):
            comparison = Comparison()
            comparison.leave("scenario", reason)
    return comparison, comparison.verdict, ""


def _replay_groups(vector: JSON, registry: Registry) -> tuple[Comparison, Verdict, str]:
    """Replay a scenario with pod groups; :mod:`.groups` undoes declared differences itself."""
    comparison = Comparison()
    try:
        check_members(vector)
        comparison, why = compare_groups(comparison, vector, registry)
    except Exception as error:
        comparison.fail("vector", f"the replay stopped: {type(error).__name__}: {error}")
        return comparison, Verdict.FAILED, ""
    return comparison, Verdict.DECLARED if why else comparison.verdict, why


_PODS = {"independent": replay_independent, "sequential": replay_sequential}


def _replay(vector: JSON, registry: Registry, variant: Variant | None, coverage: Coverage | None) -> Comparison:
    comparison = Comparison()
    try:
        check_members(vector)
        mode = vector["mode"]
        gates = gates_of(vector.get("gates", {}))
        if mode == "body":
            compare_body(comparison, vector)
        elif mode == "api":
            compare_group_api(comparison, vector)
        elif mode == "config":
            compare_config(comparison, vector, gates)
        else:
            reading = variant.reading if variant is not None else AS_RECORDED
            world = World(vector["scenario"], registry, coverage, gates, reading)
            if mode == "hints":
                compare_hint(comparison, world, vector)
            else:
                _PODS[mode](comparison, world, vector, variant.change if variant is not None else unchanged)
    except NotComparedError as error:
        comparison.leave("scenario", str(error))
    except Exception as error:
        comparison.fail("vector", f"the replay stopped: {type(error).__name__}: {error}")
    return comparison
