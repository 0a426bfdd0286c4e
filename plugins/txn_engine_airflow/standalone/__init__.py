"""A whole Airflow of one's own on 127.0.0.1: `python -m txn_engine_airflow.standalone`, which is `make airflow`."""
