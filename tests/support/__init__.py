"""The parts that tests of several folders share: servers, stores that fail, Spark, Airflow, a browser."""
