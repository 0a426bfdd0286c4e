"""What Spark's S3 connector (S3A) is told about a bucket: the same as the engine's own store was."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from storage.s3_config import S3Config
from txn_engine.spark.errors import SparkSessionError


def s3a_bucket_settings(config: S3Config) -> dict[str, str]:
    """Hadoop settings for this one bucket.

    Secrets are among them: they never belong on a command line or into Spark's own settings.
    """
    settings = {"endpoint.region": config.region}
    if config.endpoint is not None:
        settings |= {"endpoint": config.endpoint, "path.style.access": "true"}
    if credentials := config.credentials():
        access_key, secret_key, session_token = credentials
        provider = "Simple" if session_token is None else "Temporary"
        settings |= {
            "access.key": access_key,
            "secret.key": secret_key,
            "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider",
        }
        if session_token is not None:
            settings["session.token"] = session_token
    return {f"fs.s3a.bucket.{config.bucket}.{name}": value for name, value in settings.items()}


def bucket_options(spark: SparkSession, config: S3Config) -> dict[str, str]:
    """The options of one read of the bucket. They live in that DataFrame: neither the session nor another read of a
    bucket of this name, somewhere else or with other keys, gets at them.

    Hadoop keeps one connection a bucket *name* and JVM, whoever opened it. So the first connection of a name is kept,
    after one that may be there from elsewhere was closed; a read with other settings opens its own, file by file.
    Raises `SparkSessionError` for a session that was started without the S3A jars.
    """
    jvm: Any = spark.sparkContext._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    _check_jars(jvm, hadoop, config)
    options = s3a_bucket_settings(config)
    mine = hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()
    first = jvm.java.lang.System.getProperties().putIfAbsent(f"txn-engine.s3a.{config.bucket}", mine)
    if first is None:
        _close_cached(jvm, hadoop, config.bucket, options)
    elif first != mine:
        options["fs.s3a.impl.disable.cache"] = "true"
    return options


def _close_cached(jvm: Any, hadoop: Any, bucket: str, options: dict[str, str]) -> None:
    """Close what the JVM keeps open for the bucket's name: somebody else opened it, with settings of his own."""
    settings = jvm.org.apache.hadoop.conf.Configuration(hadoop)
    for name, value in options.items():
        settings.set(name, value)
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(f"s3a://{bucket}/"), settings).close()


def _check_jars(jvm: Any, hadoop: Any, config: S3Config) -> None:
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)
    except Py4JJavaError as error:
        raise SparkSessionError(
            "the Spark session has no S3A jars",
            actor="spark",
            place=config.url,
            expected="a session made by txn_engine.spark.spark_session(url) with this URL",
            action="stop the session that runs, or start it with txn_engine.spark.jars.s3a_jar_settings()",
        ) from error
