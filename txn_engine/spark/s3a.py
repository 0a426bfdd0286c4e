"""What Spark's S3 connector (S3A) is told about a bucket: the same as the engine's own store was."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from storage.s3 import S3Config
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


def open_bucket(spark: SparkSession, config: S3Config) -> None:
    """Let a session read the bucket. Raises `SparkSessionError` for a session that was started without the S3A jars."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        jvm = spark.sparkContext._jvm
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)  # type: ignore[union-attr]
    except Py4JJavaError as error:
        raise SparkSessionError(
            "the Spark session has no S3A jars",
            actor="spark",
            place=config.url,
            expected="a session made by txn_engine.spark.spark_session(url) with this URL",
            action="stop the session that runs, or start it with txn_engine.spark.jars.s3a_jar_settings()",
        ) from error
    for name, value in s3a_bucket_settings(config).items():
        hadoop.set(name, value)
