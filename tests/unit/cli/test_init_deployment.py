"""The files that ``asyncrevoke init --docker --k8s --keda`` writes: they are valid, and agree."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documentation.commands import check_command
from typer.testing import CliRunner

from asyncrevoke.cli.app import app
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.integrations import conventions

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "how-to" / "operating"
DEPLOYMENT = ("--docker", "--k8s", "--keda")


def written(folder: Path, *options: str) -> list[str]:
    """Run ``asyncrevoke init``; the files that it has written."""
    result = CliRunner().invoke(app, ["init", str(folder), "--json", *options])
    assert result.exit_code == 0, result.output
    files: list[str] = json.loads(result.output)["files"]
    return files


def manifest(folder: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((folder / "kubernetes" / name).read_text("utf-8"))
    return loaded


def instructions(folder: Path) -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = (folder / "Dockerfile").read_text("utf-8").splitlines()
    found = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in found]


def command(folder: Path) -> list[str]:
    """What the container runs; raises if it is not a list, for a shell would keep SIGTERM."""
    words: list[str] = json.loads(dict(instructions(folder))["CMD"])
    return words


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "billing"
    written(folder, *DEPLOYMENT)
    return folder


@pytest.mark.parametrize("release", ["1.28", "1.31", "1.34", "1.37"])
@pytest.mark.parametrize("options", [("--k8s",), ("--k8s", "--keda")])
@pytest.mark.parametrize("name", ["billing", "2024", "on", "A project of " + "x" * 80])
def test_kubernetes_accepts_the_manifests(
    tmp_path: Path, release: str, options: tuple[str, ...], name: str
) -> None:
    folder = tmp_path / name
    for path in written(folder, *options):
        if path.startswith("kubernetes/") and not path.endswith("scaled-object.yaml"):
            kubernetes_validate.validate(manifest(folder, Path(path).name), release, strict=True)


def test_the_container_runs_a_command_that_exists_as_process_1_and_not_as_root(
    project: Path,
) -> None:
    check_command(command(project), project)
    assert dict(instructions(project))["USER"].split(":")[0].isdigit()
    assert dict(instructions(project))["USER"] != "0:0"
    assert "ENTRYPOINT" not in dict(instructions(project))


def test_what_the_image_copies_is_there_and_not_ignored(project: Path) -> None:
    ignored = (project / ".dockerignore").read_text("utf-8").splitlines()
    copied = next(rest for word, rest in instructions(project) if word == "COPY")
    *sources, _ = shlex.split(copied)
    assert ignored[0] == "*"
    assert {f"!{source}" for source in sources} == set(ignored[1:])
    assert all((project / source).is_file() for source in sources if "*" not in source)


def test_the_probes_ask_the_port_that_the_container_serves(project: Path) -> None:
    pod = manifest(project, "deployment.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = command(project)
    port = int(words[words.index("--health-port") + 1])
    assert container["ports"] == [{"name": "health", "containerPort": port}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    # The kubelet asks from outside of the container.
    assert words[words.index("--health-host") + 1] == "0.0.0.0"  # noqa: S104
    assert dict(instructions(project))["EXPOSE"] == str(port)


def test_prometheus_is_told_the_port_and_path_that_the_container_serves(project: Path) -> None:
    words = command(project)
    assert "--metrics" in words
    pod = manifest(project, "deployment.yaml")["spec"]["template"]
    assert pod["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": words[words.index("--health-port") + 1],
        "prometheus.io/path": "/metrics",
    }
    dependencies = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    assert dependencies["dependencies"] == ["asyncrevoke[cli,metrics]"]


def test_a_share_group_is_scaled_by_the_lag_that_its_members_report(tmp_path: Path) -> None:
    written(tmp_path / "mails", *DEPLOYMENT, "--share")
    spec = manifest(tmp_path / "mails", "scaled-object.yaml")["spec"]
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus"
    metric = conventions.SHARE_LAG.name.replace(".", "_")
    group = conventions.GROUP.replace(".", "_")
    assert trigger["metadata"]["query"] == f'max({metric}{{{group}="mails"}})'
    assert spec["maxReplicaCount"] > 8


def test_a_pod_may_drain_for_longer_than_the_consumer_needs(project: Path) -> None:
    pod = manifest(project, "deployment.yaml")["spec"]["template"]["spec"]
    assert "close_timeout" not in (project / "app.py").read_text("utf-8")
    assert pod["terminationGracePeriodSeconds"] >= ConsumerConfig().close_timeout + 5


def test_only_keda_or_the_deployment_sets_the_number_of_pods(project: Path, tmp_path: Path) -> None:
    assert "replicas" not in manifest(project, "deployment.yaml")["spec"]
    plain = tmp_path / "plain"
    written(plain, "--k8s")
    assert manifest(plain, "deployment.yaml")["spec"]["replicas"] == 2
    scaled = manifest(project, "scaled-object.yaml")["spec"]
    name = manifest(project, "deployment.yaml")["metadata"]["name"]
    assert scaled["scaleTargetRef"] == {"name": name}
    assert scaled["minReplicaCount"] < scaled["maxReplicaCount"]


def test_keda_reads_the_lag_of_the_group_and_topic_that_the_project_reads(project: Path) -> None:
    (trigger,) = manifest(project, "scaled-object.yaml")["spec"]["triggers"]
    source = (project / "app.py").read_text("utf-8")
    assert f'group_id="{trigger["metadata"]["consumerGroup"]}"' in source
    assert f'@consumer.handler("{trigger["metadata"]["topic"]}"' in source
    (container,) = manifest(project, "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        {"name": "BOOTSTRAP_SERVERS", "value": trigger["metadata"]["bootstrapServers"]}
    ]
    assert 'os.environ.get("BOOTSTRAP_SERVERS"' in source


def test_selectors_find_the_pods(project: Path) -> None:
    deployment = manifest(project, "deployment.yaml")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    budget = manifest(project, "disruption-budget.yaml")["spec"]
    assert budget["selector"]["matchLabels"] == labels


def test_a_project_that_exists_gets_the_files_of_its_deployment_alone(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    assert written(tmp_path, "--docker") == ["Dockerfile", ".dockerignore"]
    assert (tmp_path / "app.py").read_text() == "mine"
    assert not (tmp_path / "pyproject.toml").exists()
    again = CliRunner().invoke(app, ["init", str(tmp_path), "--docker", "--k8s"])
    assert again.exit_code == 2
    error = " ".join(again.output.split())
    assert "already has Dockerfile and .dockerignore: leave out the options" in error
    assert not (tmp_path / "kubernetes").exists()


def test_adding_keda_to_a_deployment_with_replicas_says_to_remove_them(tmp_path: Path) -> None:
    def hint(name: str, *options: str) -> bool:
        output = CliRunner().invoke(app, ["init", str(tmp_path / name), *options]).output
        return "Remove `replicas` from kubernetes/deployment.yaml" in output

    assert not hint("orders", "--k8s")
    assert hint("orders", "--keda")
    assert not hint("bills", "--k8s", "--keda")


@pytest.mark.parametrize(
    "path",
    [
        "Dockerfile",
        "kubernetes/deployment.yaml",
        "kubernetes/disruption-budget.yaml",
        "kubernetes/scaled-object.yaml",
    ],
)
def test_the_page_shows_the_files_as_they_are_written(tmp_path: Path, path: str) -> None:
    # Without KEDA, and with it where the page is about it.
    folder = tmp_path / "billing"
    written(folder, "--docker", "--k8s", *(["--keda"] if "scaled" in path else []))
    page = PAGES / ("tuning.md" if "scaled" in path else "kubernetes.md")
    text = (folder / path).read_text("utf-8")
    language = "dockerfile" if path == "Dockerfile" else "yaml"
    assert f"```{language}\n{text}```\n" in page.read_text("utf-8")
