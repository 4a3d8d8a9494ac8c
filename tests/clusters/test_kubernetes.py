"""kubernetes.yaml: by the schemas of Kubernetes, and by the program that its pods run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils as schemas

from artf_cli.containers.images import QUICKSTART, image_name
from artf_cli.paths import REPO

FILE = REPO / "scripts/clusters/kubernetes.yaml"
VERSIONS = sorted(set(schemas.all_versions()))
#: Jobs with an index are stable since 1.24.
OLDEST, SOME = "1.25.0", 10


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """(kind, name) → manifest."""
    found = list(yaml.safe_load_all(FILE.read_text()))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def jobs() -> dict[str, dict[str, Any]]:
    return {name: each["spec"] for (kind, name), each in manifests().items() if kind == "Job"}


def pods() -> dict[str, dict[str, str]]:
    """The name of each pod in its network → its environment, as Kubernetes makes both."""
    shared = manifests()["ConfigMap", "lenet"]["data"]
    found = {}
    for name, job in jobs().items():
        pod = job["template"]["spec"]
        for index in range(job["completions"]):
            env = dict(shared)
            for one in pod["containers"][0]["env"]:
                # The index is the only value that comes from a field.
                text = one.get("value", str(index))
                for known, value in env.items():
                    text = text.replace(f"$({known})", value)
                env[one["name"]] = text
            found[f"{name}-{index}.{pod['subdomain']}"] = env
    return found


def test_some_versions_have_schemas() -> None:
    assert len(VERSIONS) > SOME
    assert VERSIONS[0] == OLDEST


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_valid(version: str) -> None:
    for manifest in manifests().values():
        schemas.validate(manifest, version, strict=True)


def test_a_wrong_manifest_is_not() -> None:
    job = manifests()["Job", "lenet-worker"]
    job["spec"]["completionmode"] = job["spec"].pop("completionMode")
    with pytest.raises(schemas.ValidationError, match="completionmode"):
        schemas.validate(job, VERSIONS[-1], strict=True)


def place(env: dict[str, str]) -> list[Any]:
    """What the training's own reader makes of a pod's environment."""
    code = "import json, settings; print(json.dumps([*settings.place(), settings.protocol()]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPO / "scripts/artf_cli/runtime"), **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_each_pod_is_a_task_of_the_cluster() -> None:
    names = pods()
    assert sorted(names) == ["lenet-ps-0.lenet", "lenet-worker-0.lenet", "lenet-worker-1.lenet"]
    tasks = set()
    for name, env in names.items():
        cluster, job, index, protocol = place(env)
        assert cluster[job][index] == f"{name}:2222"
        assert protocol == "grpc+ar"
        tasks.add((job, index))
    assert tasks == {("ps", 0), ("worker", 0), ("worker", 1)}


def test_the_service_and_the_policy_select_every_pod() -> None:
    service = manifests()["Service", "lenet"]["spec"]
    policy = manifests()["NetworkPolicy", "lenet"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    sources = policy["ingress"][0]["from"]
    wanted = [service["selector"], policy["podSelector"]["matchLabels"]]
    wanted += [each["podSelector"]["matchLabels"] for each in sources]
    for job in jobs().values():
        assert wanted == [job["template"]["metadata"]["labels"]] * 3
        assert job["completionMode"] == "Indexed"
        assert job["completions"] == job["parallelism"]
        # Peers must be the same user, which is the image's.
        assert job["template"]["spec"]["securityContext"]["runAsUser"] == 1000
        assert job["template"]["spec"]["containers"][0]["image"] == image_name(QUICKSTART, "latest")
