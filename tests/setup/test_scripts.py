"""The scripts of set-up report what fails, report nothing that is untrue, and fetch nothing twice.

`make prove-setup` proves that set-up works on a machine without any of the programs that it sets up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.setup.fresh_machine import bare_packages
from tests.support.servers import REPOSITORY
from tests.support.waiting import must_run, wait_for

SCRIPTS = sorted(path for path in (REPOSITORY / ".ci").iterdir() if path.is_file())
PREDICATES = {"done_already", "failed_lately", "built", "usable_python", "find_java"}
"""Functions that are used as conditions: their last command is their answer, and no command before it may fail."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def findings(script: Path, text: str | None = None) -> list[str]:
    """The findings of ShellCheck, without those about predicates that are used as conditions."""
    checked = subprocess.run(
        [
            Path(sys.executable).with_name("shellcheck"),
            *("--external-sources", "--source-path=SCRIPTDIR", "--format=json", "--enable=check-set-e-suppressed"),
            "-" if text is not None else script.name,
        ],
        cwd=script.parent, input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (text or script.read_text(encoding="utf-8")).splitlines()
    return [
        f"{script.name}:{found['line']}: SC{found['code']}: {found['message']}"
        for found in json.loads(checked.stdout)
        if found["code"] != 2310
        or lines[found["line"] - 1][found["column"] - 1 :].split(None, 1)[0].rstrip(";") not in PREDICATES
    ]


def test_no_script_loses_a_failure() -> None:
    """ShellCheck finds nothing, above all no function whose `set -e` is switched off by an `if` or `||`."""
    assert len(SCRIPTS) > 10
    with ThreadPoolExecutor(2) as at_once:
        found = [finding for findings_of_one in at_once.map(findings, SCRIPTS) for finding in findings_of_one]
    assert found == []


def test_the_lost_failure_would_be_found() -> None:
    """ShellCheck finds the fault that once hid that the browser did not start."""
    lost = (
        "#!/usr/bin/env bash\nset -e\nfetch() {\n    false\n    true\n}\n(fetch) || echo 'it did not come'\n"
    )
    (found,) = findings(REPOSITORY / ".ci" / "lost", lost)
    assert "SC2310" in found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts in a repository of this test, and a folder `bin` that comes first on the PATH."""
    root = tmp_path / "checkout"
    shutil.copytree(REPOSITORY / ".ci", root / ".ci")
    shutil.copytree(REPOSITORY / "requirements", root / "requirements")
    (tmp_path / "bin").mkdir()
    for program in ("chromium", "chromium-browser", "google-chrome", "initdb"):
        stub(tmp_path, program, "exit 1")
    return root


def stub(tmp_path: Path, program: str, script: str) -> None:
    """Put a program of that name on the PATH. It runs the script and records that it ran."""
    path = tmp_path / "bin" / program
    path.write_text(f'#!/bin/sh\necho {program} "$@" >>"{tmp_path}/ran"\n{script}\n')
    path.chmod(0o755)


@pytest.fixture
def run(checkout: Path, tmp_path: Path) -> Run:
    """Run a script of the checkout, which can find neither the machine's browser nor its Postgres."""

    def call(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "CI"}
        return subprocess.run(
            command,
            cwd=checkout,
            env={
                **inherited,
                "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "POSTGRES_HOMES": str(tmp_path / "none"),
                **environment,
            },
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    return call


def programs_that_ran(tmp_path: Path) -> list[str]:
    ran = tmp_path / "ran"
    return [line.split()[0] for line in ran.read_text().splitlines()] if ran.exists() else []


def test_packages_that_do_not_come_are_said_and_not_fetched_again_at_once(
    checkout: Path, run: Run, tmp_path: Path
) -> None:
    """The first command fails, though each later one would succeed. Set-up goes on without the packages, and
    CI tries again."""
    stub(tmp_path, "apt-get", 'case "$*" in *update*) exit 100 ;; esac')
    first = run(".ci/setup-debian")
    assert first.returncode == 0, first.stderr
    assert "no chromium fonts-liberation postgresql" in first.stderr
    assert not (checkout / ".cache/found/chromium").exists()
    assert programs_that_ran(tmp_path).count("apt-get") == 1
    again = run(".ci/setup-debian")
    assert "as it was within the hour" in again.stderr
    assert programs_that_ran(tmp_path).count("apt-get") == 1
    run(".ci/setup-debian", CI="1")
    assert programs_that_ran(tmp_path).count("apt-get") == 2
    failed = checkout / ".cache/stamps/debian.failed"
    os.utime(failed, (0, 0))
    run(".ci/setup-debian")
    assert programs_that_ran(tmp_path).count("apt-get") == 3


def test_a_browser_that_does_not_start_did_not_come(checkout: Path, run: Run, tmp_path: Path) -> None:
    """A browser that is unpacked and cannot render is a failure of set-up, not of the tests."""
    stub(
        tmp_path,
        "apt-get",
        'case "$*" in *simulate*) echo Inst chromium ;; *download*) touch chromium.deb ;; esac',
    )
    unpack = 'mkdir -p "$3/usr/lib/chromium"\ncp /bin/true "$3/usr/lib/chromium/chromium"'
    stub(tmp_path, "dpkg-deb", unpack)
    done = run(".ci/setup-debian", "--fetch", "chromium")
    assert done.returncode != 0
    assert (checkout / ".cache/debian/bin/chromium").exists()
    assert not (checkout / ".cache/found/chromium").exists()


def test_the_machines_programs_are_taken_where_they_run(checkout: Path, run: Run, tmp_path: Path) -> None:
    """A `chromium` that fails is skipped for the next one that runs. Nothing is fetched, and later nothing runs."""
    for program in ("google-chrome", "initdb", "postgres"):
        stub(tmp_path, program, "exit 0")
    stub(tmp_path, "apt-get", "exit 1")
    assert run(".ci/setup-debian").stdout == ""
    found = checkout / ".cache/found"
    assert (found / "chromium").resolve().name == "google-chrome"
    assert {path.name for path in found.iterdir()} == {"chromium", "initdb", "postgres"}
    ran = programs_that_ran(tmp_path)
    assert "apt-get" not in ran
    assert run(".ci/setup-debian").stdout == ""
    assert programs_that_ran(tmp_path) == ran


def test_minio_is_built_once_however_many_ask(checkout: Path, run: Run, tmp_path: Path) -> None:
    """Four processes that need MinIO at the same time share one build."""
    stub(tmp_path, "go", "echo go1.24.1")
    build = checkout / ".ci/build-minio"
    build.write_text(
        f'#!/bin/sh\necho build >>"{tmp_path}/builds"\nsleep 1\nmkdir -p "$2"\n: >"$2/minio"\nchmod +x "$2/minio"\n'
    )
    (checkout / ".cache/logs").mkdir(parents=True)
    (checkout / ".cache/bin").mkdir()
    with ThreadPoolExecutor(4) as at_once:
        asked = list(at_once.map(lambda _: run(".ci/setup-minio"), range(4)))
    assert [done.returncode for done in asked] == [0] * 4, [done.stderr for done in asked]
    assert (tmp_path / "builds").read_text().splitlines() == ["build"]
    assert run(".ci/setup-minio", "--wait").returncode == 0


def test_a_build_of_minio_is_waited_for(checkout: Path, tmp_path: Path, run: Run) -> None:
    """`--wait` waits for the end of a build, even if the script that started it was killed, and reports a failure."""
    stub(tmp_path, "go", "echo go1.24.1")
    build = checkout / ".ci/build-minio"
    build.write_text(
        f'#!/bin/sh\ntouch "{tmp_path}/began"\nuntil [ -e "{tmp_path}/may-end" ]; do sleep 0.05; done\n'
        f'touch "{tmp_path}/ended"\nexit 1\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    builder = subprocess.Popen([checkout / ".ci/setup-minio"], **quiet)
    wait_for((tmp_path / "began").exists, what="the start of the build", meanwhile=must_run(builder))
    builder.kill()
    builder.wait()
    waiter = subprocess.Popen([checkout / ".ci/setup-minio", "--wait"], cwd=checkout, **quiet)
    wait_for(
        lambda: has_open(waiter, "minio-build.lock"), what="`--wait` to wait", meanwhile=must_run(waiter)
    )
    (tmp_path / "may-end").touch()
    assert waiter.wait(60) == 0
    assert (tmp_path / "ended").exists()
    assert run(".ci/setup-minio").returncode == 1
    failed = run(".ci/setup-minio", "--wait")
    assert (failed.returncode, "MinIO was not built" in failed.stderr) == (1, True)


def test_a_set_up_waits_for_another_one(checkout: Path, tmp_path: Path, run: Run) -> None:
    """Two `make` at once do not work in one cache: the second set-up says which process it waits for, and begins when
    the first has ended. A set-up that is killed leaves no lock behind."""
    stages = ("python", "java", "airflow", "kafka", "debian", "azurite", "spark-jars")
    for stage in stages:
        (checkout / f".ci/setup-{stage}").write_text("#!/bin/sh\n")
    (checkout / ".ci/setup-python").write_text(
        f'#!/bin/sh\n[ ! -e "{tmp_path}/in" ] || touch "{tmp_path}/both"\ntouch "{tmp_path}/in"\n'
        f'until [ -e "{tmp_path}/may-end" ]; do sleep 0.05; done\nrm "{tmp_path}/in"\n'
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with (
        subprocess.Popen([checkout / ".ci/setup"], **pipes) as first,
        subprocess.Popen([checkout / ".ci/setup"], **pipes) as second,
    ):
        wait_for((tmp_path / "in").exists, what="a set-up to begin")
        lock = checkout / ".cache/setup.lock"
        wait_for(lambda: lock.read_text().strip(), what="the number of the first process")
        holder = int(lock.read_text())
        assert holder in (first.pid, second.pid)
        waiter = second if holder == first.pid else first
        assert waiter.stdout is not None
        said = waiter.stdout.readline()
        assert f"process {holder}" in said
        (tmp_path / "may-end").touch()
        assert (first.wait(60), second.wait(60)) == (0, 0)
    assert not (tmp_path / "both").exists()
    assert run(".ci/setup").returncode == 0


def has_open(process: subprocess.Popen[bytes], name: str) -> bool:
    """Whether the process, which must still run, has a file of that name open."""
    return any(Path(file.path).name == name for file in psutil.Process(process.pid).open_files())


def test_minio_of_another_sum_is_not_built(checkout: Path, run: Run, tmp_path: Path) -> None:
    """The checksum in the repository decides, whatever the settings of the machine's Go."""
    stub(tmp_path, "go", 'case "$*" in *download*) printf \'\\t"Sum": "h1:other=",\\n\' ;; esac')
    done = run(".ci/build-minio", str(tmp_path / "bin/go"), str(tmp_path / "built"))
    assert done.returncode == 1
    assert "h1:other=" in done.stderr
    assert "install" not in (tmp_path / "ran").read_text()


def test_minio_is_held_against_the_public_checksums(checkout: Path, run: Run, tmp_path: Path) -> None:
    """Neither environment variables nor Go's settings file switch the check off."""
    (sum_of_module,) = [
        line.split()[2]
        for line in (REPOSITORY / "requirements/minio.txt").read_text().splitlines()
        if line[0] != "#"
    ]
    shown = '"$GOSUMDB|$GONOSUMDB|$GOPRIVATE|$GONOPROXY|$GOINSECURE|$GOFLAGS|$GOENV"'
    stub(
        tmp_path,
        "go",
        f'case "$*" in *download*) printf \'\\t"Sum": "{sum_of_module}",\\n\' ;; *install*) echo {shown} ;; esac',
    )
    off = {"GOSUMDB": "off", "GOFLAGS": "-mod=mod", "GOENV": "/x"}
    private = dict.fromkeys(("GONOSUMDB", "GOPRIVATE", "GONOPROXY", "GOINSECURE"), "github.com/*")
    done = run(".ci/build-minio", str(tmp_path / "bin/go"), str(tmp_path / "built"), **off, **private)
    assert done.stdout.splitlines()[-1] == "sum.golang.org||||||off", done.stderr


STATUS = """Package: base
Priority: required
Depends: libc (>= 2), one | other:any
Provides: shell

Package: libc
Priority: optional

Package: other
Priority: optional
Pre-Depends: virtual

Package: real
Priority: optional
Provides: virtual (= 1)

Package: chromium
Priority: optional
Depends: libpulse

Package: libpulse
Priority: optional
"""


def test_a_bare_debian_has_what_is_required_and_what_that_needs() -> None:
    assert set(bare_packages(STATUS)) == {"base", "libc", "other", "real"}


@pytest.mark.parametrize("failing", ["nothing", "test", "shard", "test shard"])
def test_ci_compares_what_failed_with_the_base(
    checkout: Path, run: Run, tmp_path: Path, failing: str
) -> None:
    """Failures of `make test` and of the shard that was picked are tried at the base commit, and CI fails."""
    for script in ("setup-uv", "setup-minio"):
        (checkout / ".ci" / script).write_text("#!/bin/sh\n")
    stub(tmp_path, "make", f'for each in {failing}; do [ "$1" != "$each" ] || exit 1; done')
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\ncase "$*" in *pick) echo kills ;; *) echo "asked: $*"; exit 1 ;; esac\n')
    python.chmod(0o755)
    done = run(".ci/run", CI_RUN_LIMITED="1")
    asked = [line.rpartition("/")[2] for line in done.stdout.splitlines() if line.startswith("asked: ")]
    results = {"test": "tests.json", "shard": "kills.json"}
    assert asked == [results[each] for each in failing.split() if each in results], done.stderr
    assert done.returncode == (0 if failing == "nothing" else 1)
