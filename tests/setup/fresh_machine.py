"""Set-up on a machine that lacks what it sets up: Chromium, Postgres, Java, Go, uv (`make prove-setup`; Debian only).

The checkout is copied to an empty folder and set up there by its own `.ci/setup`, under a PATH without those programs
and with the package list of a bare Debian, so that every library comes from what was unpacked. Then each found program
must run: a page is rendered, a database started, Spark counts, Go says its version; so must the tests in which a
library looks for one by itself. Last, nothing is left to set up.
Downloads are shared with the machine's caches of pip, uv and Go; Debian's packages and Spark's jars come anew.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HIDDEN = re.compile(
    r"chrom|google-chrome|java|jshell|jwebserver|go$|gofmt|uvx?$|initdb|pg_|postgres|psql|createdb|createuser|dropdb"
)
DPKG_STATUS = Path("/var/lib/dpkg/status")
SECOND_RUN_MAX_S = 5.0

RENDER = """
from tests.support.browser import chromium_binary, running_browser
binary = chromium_binary()
with running_browser(binary) as browser:
    page = browser.new_page()
    page.set_content("<p>rendered by</p>")
    assert page.inner_text("p") == "rendered by"
    print("ran:", binary.resolve(), browser.version)
"""
QUERY = """
import psycopg2
from tests.support.postgres import PostgresServer, postgres_binaries
binaries = postgres_binaries()
with PostgresServer(binaries) as server, psycopg2.connect(server.url.replace("+psycopg2", "")) as connection:
    cursor = connection.cursor()
    cursor.execute("select version()")
    print("ran:", (binaries / "initdb").resolve(), cursor.fetchone()[0])
"""
COUNT = """
from txn_engine.spark import spark_session
from txn_engine.spark.java import find_java_home
spark = spark_session("s3://none")
assert spark.range(1_000).count() == 1_000
spark.stop()
print("ran:", find_java_home(), spark.version)
"""
TESTS = ["tests/spark/test_connect.py"]
"""Those in which a library looks for Java by itself."""
STAGES = {
    "Chromium renders": [".venv/bin/python", "-c", RENDER],
    "Postgres answers": [".venv/bin/python", "-c", QUERY],
    "Java runs Spark": [".venv/bin/python", "-c", COUNT],
    "Go says its version": ["sh", "-c", 'go=$(.ci/setup-minio --go) && echo "ran: $go $("$go" version)"'],
}


def copy_checkout(target: Path) -> None:
    """Every file that git tracks or would add, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)


def bare_path(folder: Path) -> Path:
    """A folder with a link to each program of the PATH except the hidden ones. The first program of a name
    wins."""
    folder.mkdir()
    own = Path(sys.prefix, "bin").resolve()
    for place in os.environ["PATH"].split(os.pathsep):
        if not Path(place).is_dir() or Path(place).resolve() == own:
            continue
        for program in Path(place).iterdir():
            link = folder / program.name
            if not HIDDEN.match(program.name) and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program)
    return folder


def bare_packages(status: str) -> dict[str, str]:
    """The stanzas of what Debian calls required or important, and of all that these need."""
    stanzas: dict[str, str] = {}
    providers: dict[str, set[str]] = {}
    for stanza in filter(None, status.split("\n\n")):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        name = fields["Package"]
        stanzas[name] = stanza
        for provided in (name, *re.findall(r"([^\s,]+)(?: \([^)]*\))?", fields.get("Provides", ""))):
            providers.setdefault(provided, set()).add(name)
    kept: dict[str, str] = {}
    wanted = [
        name
        for name, text in stanzas.items()
        if re.search(r"^Priority: (required|important)$", text, re.MULTILINE)
    ]
    while wanted:
        name = wanted.pop()
        if name in kept:
            continue
        kept[name] = stanzas[name]
        for line in re.findall(r"^(?:Pre-)?Depends: (.*)$", stanzas[name], re.MULTILINE):
            for needed in re.findall(
                r"([a-z0-9][a-z0-9.+-]*)(?::\w+)?(?: \([^)]*\))?(?:[,|]|$)", line.replace(" |", "|")
            ):
                wanted.extend(providers.get(needed, ()))
    return kept


def bare_environment(folder: Path) -> dict[str, str]:
    """The machine's environment with another PATH, and without variables that lead to hidden programs."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TXN_ENGINE_", "AIRFLOW_", "JAVA_", "VIRTUAL_ENV", "PYTHON", "PG"))
    }
    status = folder / "dpkg-status"
    status.write_text("\n\n".join(bare_packages(DPKG_STATUS.read_text(encoding="utf-8")).values()) + "\n\n")
    (folder / "apt.conf").write_text(f'Dir::State::status "{status}";\n')
    return inherited | {
        "PATH": str(bare_path(folder / "bin")),
        "APT_CONFIG": str(folder / "apt.conf"),
        "POSTGRES_HOMES": str(folder / "none"),
    }


def libraries_of_the_machine(checkout: Path, kept: set[str]) -> list[str]:
    """The libraries that the unpacked Chromium would load from packages a bare Debian lacks."""
    wrapper = (checkout / ".cache/found/chromium").read_text(encoding="utf-8")
    (path,) = re.findall("LD_LIBRARY_PATH='([^']*)'", wrapper)
    (binary,) = re.findall("exec '([^']*)'", wrapper)
    loaded = subprocess.run(
        ["ldd", binary],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    foreign = [line.strip() for line in loaded.splitlines() if "not found" in line]
    for name, place in re.findall(r"(\S+) => (/\S+)", loaded):
        if not place.startswith(str(checkout)):
            owners = subprocess.run(
                ["dpkg", "-S", f"*/{name}"], check=False, capture_output=True, text=True
            ).stdout
            if not any(owner.split(":")[0] in kept for owner in owners.splitlines()):
                foreign.append(f"{name} => {place}")
    return foreign


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"prove-setup: {name}: {time.monotonic() - started:.0f} s", flush=True)


def run(checkout: Path, environment: dict[str, str], command: list[str]) -> str:
    """Return the output of a command. If it fails, its output is shown and the proof ends."""
    done = subprocess.run(
        ["bash", "-c", '. .ci/env && exec "$@"', "bash", *command],
        cwd=checkout, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        for log in sorted((checkout / ".cache/logs").glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3_000:]}")
        sys.exit(f"prove-setup: {' '.join(command)[:60]}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def prove(folder: Path) -> None:
    """Run the whole proof in that empty folder."""
    checkout = folder / "checkout"
    checkout.mkdir()
    copy_checkout(checkout)
    environment = bare_environment(folder)
    for program in ("chromium", "initdb", "java", "go", "uv"):
        assert shutil.which(program, path=environment["PATH"]) is None, f"{program} is not hidden"
    with stage("set-up"):
        said = run(checkout, environment, [".ci/setup"])
        print(said, end="")
    assert not list((checkout / ".cache/stamps").glob("*.failed")), said
    for name, command in STAGES.items():
        with stage(name):
            (ran,) = re.findall(
                "^ran: (.*)$", run(checkout, environment | {"PYTHONPATH": "."}, command), re.MULTILINE
            )
            assert ran.startswith(str(checkout)), f"{name}: not with what was set up: {ran}"
            print(f"prove-setup: {ran.removeprefix(str(checkout))}")
    with stage("tests that start what was set up"):
        ran = run(checkout, environment | {"PYTHONPATH": "."}, [".venv/bin/pytest", "-q", *TESTS])
        print(f"prove-setup: {ran.splitlines()[-1]}")
    foreign = libraries_of_the_machine(checkout, set(bare_packages(DPKG_STATUS.read_text(encoding="utf-8"))))
    assert foreign == [], f"not unpacked, and no bare Debian has them: {foreign}"
    started = time.monotonic()
    assert run(checkout, environment, [".ci/setup"]) == ""
    assert time.monotonic() - started < SECOND_RUN_MAX_S, "the second set-up did something"


def main() -> None:
    """Run the proof in a temporary folder, which the user who runs Postgres has to be able to enter."""
    if not DPKG_STATUS.exists():
        sys.exit("prove-setup: this is no Debian: nothing was proved")
    with tempfile.TemporaryDirectory(prefix="fresh-machine-") as folder:
        Path(folder).chmod(0o755)
        prove(Path(folder))
    print("prove-setup: every found program runs")


if __name__ == "__main__":
    main()
