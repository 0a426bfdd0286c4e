"""What a page says of an error: whoever may view the pages learns that something is away, and not where it is.

A store's errors name its server, its bucket, and what the network or the connection said. That is for the api-server's
log, and for who may view the connection.
"""

from __future__ import annotations

import re

from airflow.sdk.exceptions import AirflowException

from txn_engine.errors import StoreAccessError, StoreUnavailableError, TxnEngineError
from txn_engine_airflow.kinds import kinds

_STORE = re.compile(
    rf"\b(?:{'|'.join(scheme for kind in kinds() for scheme in kind.schemes)})://[^\s/()\[\];,]+"
)
_SERVER = re.compile(r"\s*\(?\bhttps?://[^\s()\[\];,]+\)?")


def for_viewers(error: Exception) -> str:
    """The error in one line without the store's place."""
    if isinstance(error, (StoreAccessError, StoreUnavailableError)):
        said = " ".join((type(error).__doc__ or "").partition("\n\n")[0].split())
        return f"{said} The api-server's log says more. [{error.code}]"
    if isinstance(error, TxnEngineError):
        return _SERVER.sub("", _STORE.sub("the store", str(error)))
    if isinstance(error, AirflowException):
        return "Airflow does not say where the store is, or what it knows. The api-server's log says more."
    return f"{type(error).__name__}: the api-server's log has the reason"
