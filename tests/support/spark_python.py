"""A replacement for Python when Spark starts its Python workers in the tests: the same code, imported once.

Spark plans, reads and writes by a Python source in some six processes for each query. Each is a fork of a
daemon that has imported next to nothing, and each finds PySpark in a zip file, which it compiles again. So
more than 80 % of the processor time of these processes went into imports. Here the daemon imports the
engine's source before it forks, and PySpark comes from the installed package, whose modules are compiled
already.

`jvm.be_brief` names the script that runs this as `PYSPARK_PYTHON`.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys

DAEMON = ["-m", "pyspark.daemon"]


def main() -> None:
    """Be a warm daemon, or the plain Python of any other arguments."""
    arguments = sys.argv[1:]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if not _is_pysparks_zip(path))
    if arguments[:2] != DAEMON:
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.path[:] = ["", *(path for path in sys.path[1:] if not _is_pysparks_zip(path))]
    sys.path_importer_cache.clear()
    modules = [*arguments[2:], "txn_engine.spark.source"]
    if "pyspark.worker" in arguments:
        modules += ["pandas", "pyarrow.dataset"]
    for module in modules:
        importlib.import_module(module)
    sys.argv[:] = arguments[1:]
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


def _is_pysparks_zip(path: str) -> bool:
    return path.endswith(("pyspark.zip", "-src.zip"))


if __name__ == "__main__":
    main()
