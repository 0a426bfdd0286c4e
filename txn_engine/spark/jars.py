"""The jars that let Spark read and write S3: 13 MB, resolved by Spark itself through Ivy, once.

As resolved by default, hadoop-aws pulls the AWS SDK's 686 MB bundle; the modules that it really uses are
named here instead. Versions belong together: pyspark 4.3 carries Hadoop 3.5.0.
"""

from __future__ import annotations

from txn_engine.spark.cache_folder import cache_folder

HADOOP_VERSION = "3.5.0"
AWS_SDK_VERSION = "2.35.4"

S3A_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    *(
        f"software.amazon.awssdk:{module}:{AWS_SDK_VERSION}"
        for module in ("s3", "s3-transfer-manager", "sts", "apache-client")
    ),
)
S3A_EXCLUDES = (
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:netty-nio-client",
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-common",
    "org.wildfly.openssl:wildfly-openssl",
)


def s3a_jar_settings() -> dict[str, str]:
    """The Spark settings that bring the S3A jars; to be set before the session's JVM starts.

    The Ivy folder is our own: Ivy stops at a cache that holds a module's description without its jar, as a
    user's may.
    """
    return {
        "spark.jars.packages": ",".join(S3A_PACKAGES),
        "spark.jars.excludes": ",".join(S3A_EXCLUDES),
        "spark.jars.ivy": str(cache_folder() / "ivy"),
    }
