"""`python -m tests.postgres.by_spark URL DSN TRIES`: run what docs/POSTGRES.md shows of Spark, in a JVM with
the driver."""

from __future__ import annotations

import sys
from typing import Any

from psycopg import conninfo

from tests.docs.test_code_blocks import blocks, run_block


def main(url: str, dsn: str, tries: int) -> int:
    """Run the block this many times."""
    words = conninfo.conninfo_to_dict(dsn)
    jdbc = {
        "url": f"jdbc:postgresql://{words['host']}:{words['port']}/{words['dbname']}",
        "user": words["user"],
        "password": words["password"],
        "driver": "org.postgresql.Driver",
    }
    names: dict[str, Any] = {"url": url, "dsn": dsn, "jdbc": jdbc}
    for _ in range(tries):
        run_block(blocks("docs/POSTGRES.md", "python")[3], url, names)
    names["spark"].stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
