"""The wheel has the files of the repository that are needed, and one version is said everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import release
from release import METADATA, build, differences, expected_in_wheel, other_versions, version_of, wheel_files

from kubesched import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "wheel")


def test_the_wheel_has_the_version_of_the_package_and_its_files_and_no_other(wheel: Path) -> None:
    assert version_of(wheel) == __version__
    assert differences(wheel_files(wheel), expected_in_wheel(__version__)) == []


def test_nothing_of_tests_or_documentation_is_expected_in_the_wheel() -> None:
    names = expected_in_wheel("1")
    assert {name.split("/")[0] for name in names} == {"kubesched", "kubesched-1.dist-info"}
    assert {"kubesched/py.typed", "kubesched/_data/bench/basic.yaml", "kubesched/_data/examples/README.md"} < names
    assert len(names) > len(METADATA) + 500


def test_the_manifests_name_the_version_of_the_package() -> None:
    assert other_versions(__version__) == []


def test_manifests_with_another_version_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/pod.yaml").write_text("image: kubesched:1.2.3\n")
    (tmp_path / "deploy/Chart.yaml").write_text("version: 1.2.4\nappVersion: 1.2.3\n")
    (tmp_path / "deploy/kustomization.yaml").write_text("images:\n  - newTag: 1.2.2\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert other_versions("1.2.3") == ["deploy/Chart.yaml: 1.2.4", "deploy/kustomization.yaml: 1.2.2"]


def test_files_too_many_and_missing_ones_are_named() -> None:
    assert differences(["a", "b"], {"b", "c"}) == ["+ a", "- c"]
    with pytest.raises(SystemExit, match=r"files:\n  \+ a"):
        release.nothing("files", differences(["a"], set()))
