"""The example manifests with the example policy, through the whole simulator."""

import json
from pathlib import Path

import pytest
from policy_kit import POLICIES, load

from kubesched.cli.main import main

load("gpu_sharing")


def test_inference_pods_share_gpus_and_leave_a_node_to_training(capsys: pytest.CaptureFixture[str]) -> None:
    manifests, config = str(POLICIES / "shared-gpus.yaml"), str(POLICIES / "config/shared-gpus.yaml")
    for seed in ("0", "1", "2"):
        options = ["--config", config, "--plugin-module", "gpu_sharing.balanced", "--seed", seed, "-o", "json"]
        assert main(["simulate", "-f", manifests, *options]) == 0
        captured = capsys.readouterr()
        assert not captured.err
        placed = {pod["name"]: pod["node"] for pod in json.loads(captured.out)["placements"]}
        (training,) = {node for name, node in placed.items() if name.startswith("training")}
        (inference,) = {node for name, node in placed.items() if name.startswith("inference")}
        assert len(placed) == 5
        assert training != inference


def test_pods_that_do_not_fit_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifests = tmp_path / "many.yaml"
    manifests.write_text((POLICIES / "shared-gpus.yaml").read_text().replace("replicas: 4", "replicas: 12"))
    options = ["--config", str(POLICIES / "config/shared-gpus.yaml"), "--plugin-module", "gpu_sharing.balanced"]
    main(["simulate", "-f", str(manifests), *options])
    assert "node(s) didn't have 1 GPU(s) with 400/1000 free [BalancedFragmentation]" in capsys.readouterr().out


def test_arguments_that_cannot_be_used_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text((POLICIES / "config/shared-gpus.yaml").read_text().replace("share: 0.4", "part: 0.4"))
    options = ["--config", str(config), "--plugin-module", "gpu_sharing.balanced"]
    assert main(["simulate", "-f", str(POLICIES / "shared-gpus.yaml"), *options]) != 0
    assert "typicalPods[1]: " in capsys.readouterr().err
