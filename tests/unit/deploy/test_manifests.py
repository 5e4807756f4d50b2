"""What deploy/ ships can be deployed: schemas, paths, ports, users and commands agree with each other and with the code."""

import copy
import importlib.util
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import jsonschema
import kubernetes_validate
import pytest
import yaml

from engine.cli.main import cli
from engine.flow.clusters import Clusters
from engine.lab.story import live_through
from engine.load.playbooks import load_playbooks
from engine.load.rules import load_rules
from engine.load.settings import cross_check, load_settings
from engine.model.settings import Settings
from engine.serve.http import Checks, application

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
VERSIONS = ["1.30.0", kubernetes_validate.latest_version()]


def manifests() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests() if each["kind"] == kind]
    return found


def container() -> dict[str, Any]:
    (only,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def compose_file() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


class Instruction(NamedTuple):
    word: str
    arguments: str

    @property
    def items(self) -> list[str]:
        """The arguments of the exec form, else those between blanks that are no options."""
        if self.arguments.startswith("["):
            return json.loads(self.arguments)
        return [part for part in self.arguments.split() if not part.startswith("--")]


def dockerfile() -> list[Instruction]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = (line.strip() for line in text.splitlines())
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


def service_image() -> list[Instruction]:
    """The instructions of the last stage, which is the image."""
    instructions = dockerfile()
    last = max(index for index, each in enumerate(instructions) if each.word == "FROM")
    return instructions[last:]


def only(word: str) -> Instruction:
    (found,) = [each for each in service_image() if each.word == word]
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the image holds beside Python, below a folder that stands for its root."""
    root = tmp_path_factory.mktemp("image")
    folder = root
    for each in service_image():
        if each.word == "WORKDIR":
            folder = root / each.arguments.lstrip("/")
        elif each.word == "COPY" and "--from" not in each.arguments:
            *sources, target = each.items
            for source in sources:
                place = folder / target
                place.parent.mkdir(parents=True, exist_ok=True)
                copy_of = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy_of(ROOT / source, place)
    return root


def parse_command(arguments: list[str]) -> tuple[click.Command, dict[str, Any]]:
    """Return the subcommand and its options, read as the command line reads them; UsageError if it would not."""
    name, *rest = arguments
    context = click.Context(cli, help_option_names=["-h", "--help"])
    command = cli.get_command(context, name)
    assert command is not None, f"engine has no command {name!r}"
    options, _, _ = command.make_parser(
        click.Context(command, help_option_names=["-h", "--help"])
    ).parse_args(rest)
    return command, options


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: each["kind"])
def test_manifests_are_what_kubernetes_takes(manifest, version):
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_manifest_would_be_found(version):
    wrong = copy.deepcopy(manifest("Deployment"))
    wrong["spec"]["replica"] = wrong["spec"].pop("replicas")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def check_compose(text: str) -> None:
    """Hold a compose file against the schema that check-jsonschema carries; its command wants a newer click."""
    package = importlib.util.find_spec("check_jsonschema")
    assert package is not None
    (folder,) = package.submodule_search_locations
    schema = json.loads((Path(folder) / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.validate(yaml.safe_load(text), schema)


def test_the_compose_file_is_what_compose_takes():
    check_compose(COMPOSE.read_text())


def test_a_misspelt_compose_file_would_be_found():
    with pytest.raises(jsonschema.ValidationError, match="depend_on"):
        check_compose(COMPOSE.read_text().replace("depends_on:", "depend_on:"))


def configurations() -> Iterator[tuple[str, str]]:
    """Every engine.yaml that is shipped: where it lies in the container, and what it says."""
    yield "/opt/engine/conf/deploy/engine.yaml", (DEPLOY / "engine.yaml").read_text()
    yield "/etc/engine/conf/engine.yaml", manifest("ConfigMap")["data"]["engine.yaml"]
    yield "/etc/engine/engine.yaml", compose_file()["configs"]["engine"]["content"]


CONFIGURATIONS = pytest.mark.parametrize(
    ("path", "content"), list(configurations()), ids=["deploy", "kubernetes", "compose"]
)


def settings_in(image: Path, path: str, content: str) -> Settings:
    file = image / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return load_settings(file)


def below(image: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return the patterns with the folder that stands for the image's root in front of absolute ones."""
    return [each if each.startswith(str(image)) else str(image) + each for each in patterns]


@CONFIGURATIONS
def test_an_engine_started_in_the_image_finds_the_shipped_rules_and_playbooks(image, path, content):
    settings = settings_in(image, path, content)
    groups = load_rules(below(image, settings.rule_files)).groups
    playbooks = load_playbooks(below(image, settings.playbook_files))
    shipped = load_rules([ROOT / "rules"]).groups
    assert sorted(group.name for group in groups) == sorted(group.name for group in shipped)
    assert playbooks.keys() == load_playbooks([ROOT / "playbooks"]).keys()
    assert cross_check(settings, groups, playbooks) == []


@CONFIGURATIONS
def test_the_code_that_playbooks_send_to_ray_is_in_the_image(image, path, content):
    settings = settings_in(image, path, content)
    for playbook in load_playbooks(below(image, settings.playbook_files)).values():
        folder = str(Path(playbook.origin.file).parent)
        fixed = [step.act.fix(folder) for step in playbook.steps]
        assert len(fixed) == len(playbook.steps)


@CONFIGURATIONS
def test_state_lies_on_the_volume(path, content):
    assert yaml.safe_load(content)["state"]["url"].startswith("sqlite:////var/lib/engine/")
    assert only("VOLUME").items == ["/var/lib/engine"]


def test_everything_that_the_dockerfile_copies_exists_and_is_in_the_build_context():
    ignored = {line.strip() for line in (ROOT / ".dockerignore").read_text().splitlines()}
    copied = [
        source
        for each in dockerfile()
        if each.word == "COPY" and "--from" not in each.arguments
        for source in each.items[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not {str(parent) for parent in (Path(source), *Path(source).parents)} & ignored, source


def test_the_image_starts_a_command_that_the_package_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry_point,) = only("ENTRYPOINT").items
    assert entry_point in project["scripts"]


def test_the_image_has_the_python_that_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert {each.items[0] for each in dockerfile() if each.word == "FROM"} == {f"python:{oldest}-slim"}


@pytest.mark.parametrize(
    "arguments",
    [only("CMD").items, container()["args"], compose_file()["services"]["engine"]["command"]],
    ids=["image", "kubernetes", "compose"],
)
def test_containers_are_started_with_options_that_the_command_has(arguments):
    command, options = parse_command(arguments)
    assert command.name == "run"
    assert options["config"]


def test_the_image_starts_with_settings_that_are_in_it(image):
    _, options = parse_command(only("CMD").items)
    assert (image / only("WORKDIR").arguments.lstrip("/") / options["config"]).is_file()


def test_containers_are_started_with_settings_that_are_mounted():
    _, options = parse_command(container()["args"])
    assert str(Path(options["config"]).parent) in {each["mountPath"] for each in container()["volumeMounts"]}
    engine = compose_file()["services"]["engine"]
    _, options = parse_command(engine["command"])
    assert options["config"] in {each["target"] for each in engine["configs"]}


def test_all_agree_on_the_port():
    command, _ = parse_command(["run"])
    (listen,) = [each.default for each in command.params if each.name == "listen"]
    port = listen.rpartition(":")[2]
    assert only("EXPOSE").items == [port]
    assert f":{port}/-/healthy" in only("HEALTHCHECK").arguments
    (published,) = container()["ports"]
    assert str(published["containerPort"]) == port
    (service,) = manifest("Service")["spec"]["ports"]
    assert (str(service["port"]), service["targetPort"]) == (port, published["name"])
    template = manifest("Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == port
    assert compose_file()["services"]["engine"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_probes_ask_pages_that_the_service_has():
    nothing = Checks(healthy=str, ready=str, reload=lambda: None, metrics=bytes)
    pages = {route.path for route in application(nothing).routes}
    for probe in ("livenessProbe", "readinessProbe"):
        asked = container()[probe]["httpGet"]
        assert asked["path"] in pages
        assert asked["port"] == container()["ports"][0]["name"]


def test_the_user_of_the_pod_is_that_of_the_image():
    (made,) = [each for each in service_image() if each.word == "RUN" and "useradd" in each.arguments]
    uid = only("USER").arguments
    assert f"--uid {uid}" in made.arguments
    security = manifest("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert str(security["runAsUser"]) == str(security["fsGroup"]) == uid


def test_every_volume_of_the_pod_is_mounted_and_made_here_or_optional():
    spec = manifest("Deployment")["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert {each["name"] for each in container()["volumeMounts"]} == volumes.keys()
    assert volumes["config"]["configMap"]["name"] == manifest("ConfigMap")["metadata"]["name"]
    claim = volumes["state"]["persistentVolumeClaim"]["claimName"]
    assert claim == manifest("PersistentVolumeClaim")["metadata"]["name"]
    assert volumes["secrets"]["secret"]["optional"] is True


def test_the_token_is_where_the_secret_is_mounted():
    (mount,) = [each for each in container()["volumeMounts"] if each["name"] == "secrets"]
    settings = yaml.safe_load(manifest("ConfigMap")["data"]["engine.yaml"])
    (slack,) = [each for receiver in settings["receivers"] for each in receiver["slack_configs"]]
    assert slack["token_file"] == f"{mount['mountPath']}/slack-token"
    secret = manifest("Deployment")["spec"]["template"]["spec"]["volumes"]
    (name,) = [each["secret"]["secretName"] for each in secret if "secret" in each]
    command = f"kubectl create secret generic {name} -n ray-alert-engine --from-file=slack-token"
    assert command in (DEPLOY / "kubernetes" / "engine.yaml").read_text()
    assert command in (ROOT / "README.md").read_text()


def test_compose_runs_the_ray_that_the_tests_run():
    (version,) = re.findall(r"^ray_version=(\S+)$", (DEPLOY / "setup.sh").read_text(), re.MULTILINE)
    assert compose_file()["services"]["ray"]["image"] == f"rayproject/ray:{version}"


def test_compose_scrapes_and_asks_services_that_it_has():
    services = compose_file()["services"]
    configs = compose_file()["configs"]
    hosts = re.findall(r"(?:https?://|\")([a-z]+):\d+", "".join(each["content"] for each in configs.values()))
    assert set(hosts) == services.keys()


@pytest.mark.parametrize("file", load_rules([ROOT / "rules"]).tests, ids=lambda each: Path(each.file).stem)
def test_alerts_of_a_cluster_made_by_kuberay_lead_to_its_dashboard(image, file):
    """What Prometheus adds to Ray's series, the rules keep, and the settings for Kubernetes read."""
    settings = settings_in(
        image, "/etc/engine/conf/engine.yaml", manifest("ConfigMap")["data"]["engine.yaml"]
    )
    added = {"ray_io_cluster": "prod", "namespace": "ml"}
    test = file.tests[0]
    series = tuple(replace(each, labels=each.labels.updated(added)) for each in test.input_series)
    story = live_through(
        replace(test, input_series=series),
        file.groups,
        settings=settings,
        playbooks={},
        interval=test.interval,
        own_intervals=True,
    )
    fired = {alert.labels for moment in story.moments for alert in moment.alerts if alert.firing}
    assert fired
    clusters = Clusters(settings.ray.clusters, lambda _entry, address: address)
    assert {clusters.of(labels) for labels in fired} == {("prod", "http://prod-head-svc.ml:8265", "")}
