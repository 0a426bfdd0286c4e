"""docker-compose.yml keeps to the Compose specification, has what the tests run natively, and leaves nothing
open."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import pytest
import yaml

from tests.conftest import missing_server
from tests.support.servers import REPOSITORY
from txn_engine_airflow.standalone import airflow as native
from txn_engine_airflow.standalone.home import Home

FILE = REPOSITORY / "docker-compose.yml"
ONCE = {"store-setup", "airflow-migrate"}
INSIDE = Path("/opt/airflow")
RECIPE = REPOSITORY / "deploy" / "Dockerfile"
S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def test_keeps_to_the_specification(compose: dict[str, Any]) -> None:
    """The file is valid by the schema that the Compose project publishes, as the package check-jsonschema
    carries it."""
    vendored = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(compose)] == []
    wrong = {**compose, "services": {"x": {"image": "x", "ports": "8080"}}}
    assert list(validator.iter_errors(wrong)), "the schema finds mistakes"


def test_airflow_runs_the_commands_of_the_real_runs(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name: tuple(services[name]["command"]) for name in native.COMMANDS} == dict(native.COMMANDS)
    assert tuple(services["airflow-migrate"]["command"]) == native.MIGRATE
    everything = {name for name, service in services.items() if service.get("command", [""])[0] == "airflow"}
    assert everything == {*native.COMMANDS, "airflow-migrate"}


@pytest.mark.parametrize("service", [*native.COMMANDS, "airflow-migrate"])
def test_airflow_has_the_settings_of_the_real_runs(compose: dict[str, Any], service: str) -> None:
    """Compose has the same settings with the same values, except addresses, secrets and the folder."""
    environment: dict[str, str] = compose["services"][service]["environment"]
    home = Home(INSIDE / "home")
    places = native.places(home, INSIDE, environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    assert {name: environment.get(name) for name in native.SETTINGS} == dict(native.SETTINGS)
    assert {name: environment.get(name) for name in places} == places
    own = {"AIRFLOW_CONN_TXN_ENGINE_DEFAULT", "AIRFLOW__API__INSTANCE_NAME", "HOME"}
    named = {*native.SETTINGS, *places, *native.addresses("", 0), *native.SECRETS}
    assert set(environment) == named | own


def test_connection_names_the_store(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variables filled in it is a connection that the hook takes."""
    from txn_engine_airflow.connection import connection_of_environment

    text = compose["services"]["scheduler"]["environment"]["AIRFLOW_CONN_TXN_ENGINE_DEFAULT"]
    filled = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda variable: f"<{variable[1]}>", text)
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", filled)
    store = connection_of_environment()
    assert store is not None
    assert store.url == "s3://<TXN_ENGINE_BUCKET>"
    assert store.access["endpoint"] == "http://minio:9000"
    keys = (store.access["access_key"], store.access["secret_key"])
    assert keys == ("<TXN_ENGINE_ACCESS_KEY>", "<TXN_ENGINE_SECRET_KEY>")


def test_nothing_is_published_beyond_this_machine(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_container_is_confined(compose: dict[str, Any]) -> None:
    """A container has no capability, no new privilege, no writable disk and no root."""
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        user, group = service["user"].split(":")
        assert int(user) > 0, name
        assert int(group) > 0, name


def gigabytes(size: str) -> float:
    return float(size[:-1]) / {"g": 1, "m": 1024}[size[-1]]


def test_no_container_takes_all_of_the_machine(compose: dict[str, Any]) -> None:
    """Memory and processes with their threads are limited. The limit of memory includes what is written to
    /tmp, without swap."""
    for name, service in compose["services"].items():
        assert service["memswap_limit"] == service["mem_limit"], name
        assert gigabytes(service["mem_limit"]) <= 6, name
        in_memory = [re.search(r"size=(\w+)", mount)[1] for mount in service["tmpfs"]]  # type: ignore[index]
        assert gigabytes(service["mem_limit"]) > sum(map(gigabytes, in_memory)), name
        assert 0 < service["pids_limit"] <= 2048, name


def test_who_talks_to_whom(compose: dict[str, Any]) -> None:
    """Only Airflow reaches Postgres, only its readers reach the store, and the database's network has no way out."""
    services = compose["services"]
    on = {
        network: {name for name, service in services.items() if network in service["networks"]}
        for network in compose["networks"]
    }
    assert on == {
        "database": {"postgres", "airflow-migrate", *native.COMMANDS},
        "store": {"minio", "store-setup", "api-server", "scheduler", "triggerer"},
        "front": {"api-server", "scheduler"},
    }
    assert compose["networks"]["database"] == {"internal": True}
    published = {name for name, service in services.items() if service.get("ports")}
    assert published <= on["store"] | on["front"], "Docker publishes no port from an internal network"


def test_the_log_in_is_marked_as_a_demonstration_s(compose: dict[str, Any]) -> None:
    """The simple auth manager is for one machine: every page of Airflow says so, and so does the file."""
    for name in (*native.COMMANDS, "airflow-migrate"):
        environment = compose["services"][name]["environment"]
        assert environment["AIRFLOW__CORE__AUTH_MANAGER"].endswith(".SimpleAuthManager"), name
        assert "demo log-in" in environment["AIRFLOW__API__INSTANCE_NAME"], name
    assert "The log-in is a demonstration's" in FILE.read_text().split("\nname:")[0]


def test_every_image_is_named_by_its_digest_or_built_here(compose: dict[str, Any]) -> None:
    digest = re.compile(r"^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$")
    for name, service in compose["services"].items():
        assert "build" in service or digest.match(service["image"]), f"{name}: {service['image']}"
    recipe = RECIPE.read_text()
    (image,) = re.findall(r"^ARG PYTHON=(\S+)$", recipe, re.MULTILINE)
    assert digest.match(image)
    assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${PYTHON}"}


@pytest.mark.parametrize(
    "path", ["deploy/Dockerfile", ".ci/setup-python", ".ci/setup-java", ".ci/setup-minio", ".ci/setup-uv"]
)
def test_nothing_is_installed_or_built_without_a_hash(path: str) -> None:
    """Each command that installs names hashes for the packages and, if it builds, for the build's packages."""
    text = re.sub(r"\\\n\s*", " ", (REPOSITORY / path).read_text())
    commands = [
        command
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
        for command in re.split(r"&&|\|\|", line)
        if re.search(r"(?<!-m )\bpip (install|sync) |\{pip\[@\]", command)
    ]
    assert commands
    for command in commands:
        requires = "--require-hashes" in command or "--no-deps" in command
        builds = "--no-binary" in command or "--no-deps" in command
        assert requires, command
        assert ("--require-build-hashes" if builds else "--only-binary :all:") in command or (
            "--no-build-isolation" in command
        ), command


def test_only_where_spark_runs_a_file_in_memory_can_be_mapped_and_run(compose: dict[str, Any]) -> None:
    """Docker mounts a tmpfs noexec by default. zstd's library cannot be loaded from such a mount, so Spark needs
    exec.
    """
    for name, service in compose["services"].items():
        for mount in service["tmpfs"]:
            folder, _, options = mount.partition(":")
            given = set(options.split(","))
            is_sparks = service.get("command", [""])[0] == "airflow"
            assert ("exec" if is_sparks and folder == "/tmp" else "noexec") in given, f"{name}: {mount}"
            assert {"nosuid", "nodev"} <= given, f"{name}: {mount}"
            assert re.search(r"\bsize=\d+[mg]\b", options), f"{name}: {mount}"
        assert "/tmp" in {mount.partition(":")[0] for mount in service["tmpfs"]}, name


def test_logs_and_reports_are_shared_by_all_of_airflow(compose: dict[str, Any]) -> None:
    """A report that a task writes below AIRFLOW_HOME is read by the api-server, as its log is."""
    for name in (*native.COMMANDS, "airflow-migrate"):
        service = compose["services"][name]
        assert service["volumes"] == [f"airflow-home:{service['environment']['AIRFLOW_HOME']}"], name


def test_what_runs_for_good_is_watched_and_comes_back(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name in ONCE:
            assert service["restart"] == "no", name
        else:
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"]["test"], name


def test_data_lie_in_named_volumes(compose: dict[str, Any]) -> None:
    mounted = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    }
    assert mounted == set(compose["volumes"])


def test_secrets_come_from_env_and_have_no_default(compose: dict[str, Any]) -> None:
    """Each variable has to be set, is in .env.example, and is empty there if it is a secret."""
    text = "\n".join(line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    variables = re.findall(r"\$\{(\w+)([^}]*)\}", text)
    assert variables
    assert all(rest.startswith(":?") for _, rest in variables)
    example = dict(re.findall(r"^(\w+)=(.*)$", (REPOSITORY / ".env.example").read_text(), re.MULTILINE))
    assert {name for name, _ in variables} == set(example)
    assert {name: value for name, value in example.items() if value} == {"TXN_ENGINE_BUCKET": "ledger"}
    secret = re.compile(r"password|secret|_key$", re.IGNORECASE)
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if secret.search(variable) and not variable.endswith("_FILE"):
                assert str(value).startswith("${"), f"{name}: {variable}"


def test_images_have_what_the_services_name(compose: dict[str, Any]) -> None:
    """Folders and files of the commands and settings are put there by the Dockerfile."""
    recipe = RECIPE.read_text()
    minio = compose["services"]["minio"]
    assert minio["build"]["target"] == "minio"
    program, _, folder, *_ = minio["command"]
    assert f"COPY --from=minio-build /built/{program} /usr/local/bin/\n" in recipe
    assert f"chown {minio['user']} {folder}\n" in recipe
    assert minio["volumes"] == [f"minio-data:{folder}"]
    for line in (
        " AS minio",
        "mv dags /opt/airflow/",
        "COPY deploy/minio_setup.py /opt/airflow/deploy/",
        "USER airflow",
    ):
        assert line in recipe
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE):
        for path in source.split():
            assert (REPOSITORY / path).exists(), path
            assert f"!{path.split('/')[0]}" in ignored, path


def test_cache_of_the_image_is_made_where_it_is_used(compose: dict[str, Any]) -> None:
    """Java's launcher names its trust store by the whole path: the folder must have one path, and it is in /tmp."""
    (cache,) = re.findall(r"^ENV TXN_ENGINE_CACHE=(\S+)$", RECIPE.read_text(), re.MULTILINE)
    assert cache.startswith("/tmp/")
    for name, service in compose["services"].items():
        assert "TXN_ENGINE_CACHE" not in service.get("environment", {}), name
        assert "entrypoint" not in service, name


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.shard("machine")
@pytest.mark.skipif(sys.platform != "linux", reason="the image's cp is GNU's")
def test_spark_starts_from_the_image_s_cache_and_writes_beside_it_only(tmp_path: Path) -> None:
    """Spark starts by the image's entrypoint, changes no file of the cache, fetches none and leaves HOME empty."""
    jars = REPOSITORY / ".cache" / "jars"
    if not jars.is_dir():
        missing_server("no S3A jars: run `make setup`")
    image, home = tmp_path / "image", tmp_path / "home"
    shutil.copytree(jars, image / "jars")
    home.mkdir(mode=0o500)
    before = files_of(image)
    (words,) = re.findall(r"^ENTRYPOINT (.+)$", RECIPE.read_text(), re.MULTILINE)
    entrypoint = [word.replace(str(INSIDE / "cache"), str(image)) for word in json.loads(words)]
    probe = (
        "from txn_engine.spark import spark_session; s = spark_session('s3://none');"
        f"print(s._jvm.org.apache.hadoop.conf.Configuration().getClassByName('{S3A}').getName())"
    )
    environment = {
        **os.environ,
        "HOME": str(home),
        "TXN_ENGINE_CACHE": str(tmp_path / "cache"),
        "SPARK_SUBMIT_OPTS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9",
    }
    done = subprocess.run(
        [*entrypoint, sys.executable, "-c", probe],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip() == S3A, done.stderr
    assert files_of(image) == before
    assert list(home.iterdir()) == []
    fetched = [path for path in (tmp_path / "cache" / "jars").rglob("*.jar") if not path.is_symlink()]
    assert fetched == []


def files_of(folder: Path) -> dict[Path, bytes]:
    """The bytes of every file in the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}
