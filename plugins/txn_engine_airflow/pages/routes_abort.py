"""Abort: the one thing that the pages change. Written to Airflow's audit log before and after."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine_airflow.pages.answers import as_json
from txn_engine_airflow.pages.auth import GUARD_DAG, from_our_own_page, may_abort
from txn_engine_airflow.pages.routes_read import StorePollerDep

AUDIT_ABORT, AUDIT_ABORT_HANGING = "txn_engine.abort_transaction", "txn_engine.abort_hanging_transaction"
LOOK_AGAIN_MS = 5_000
_BODY_BYTES_MAX = 10_000

log = logging.getLogger(__name__)

router = APIRouter(prefix="/api", dependencies=[Depends(may_abort), Depends(from_our_own_page)])


class AbortRequest(BaseModel):
    """The very transaction that the user saw: another one under the id by now is left alone."""

    model_config = ConfigDict(extra="forbid", strict=True)

    transactional_id: str = Field(min_length=1, max_length=1_000)
    producer_id: int = Field(ge=0)
    producer_epoch: int = Field(ge=0)


class AbortHangingRequest(BaseModel):
    """The very transaction that the user saw hanging."""

    model_config = ConfigDict(extra="forbid", strict=True)

    topic: str = Field(min_length=1, max_length=249)
    partition: int = Field(ge=0)
    start_offset: int = Field(ge=0)


Asked = TypeVar("Asked", bound=BaseModel)


@router.post("/abort")
async def abort(request: Request, user: GetUserDep, poller: StorePollerDep) -> Response:
    """Abort an open transaction, if it still is the very one that the user saw.

    What its producer still writes to it is refused, and it cannot commit it. The producer is not shut out: told of the
    abort, it may begin its next transaction. A fence would be for whoever has the id by then, perhaps a successor.
    """
    asked = await _asked(request, AbortRequest)

    def act(engine: Engine) -> None:
        engine.coordinator.end_transaction(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, committed=False
        )

    return await run_in_threadpool(_audited, poller, user.get_name(), AUDIT_ABORT, asked.model_dump(), act)


@router.post("/abort-hanging")
async def abort_hanging(request: Request, user: GetUserDep, poller: StorePollerDep) -> Response:
    """End a transaction that no coordinator row knows with an abort marker (KIP-664)."""
    asked = await _asked(request, AbortHangingRequest)

    def act(engine: Engine) -> None:
        engine.admin.abort_transaction(asked.topic, asked.partition, asked.start_offset)

    return await run_in_threadpool(
        _audited, poller, user.get_name(), AUDIT_ABORT_HANGING, asked.model_dump(), act
    )


async def _asked(request: Request, kind: type[Asked]) -> Asked:
    """The body, read only now: after the user and the request were found good."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _BODY_BYTES_MAX:  # what is still to come is not read
            raise HTTPException(413, "The request is too long.")
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, at['loc']))}: {at['msg']}" for at in error.errors())
        raise HTTPException(422, wrong) from None


def _audited(
    poller: StorePollerDep,
    user: str,
    event: str,
    asked: Mapping[str, Any],
    act: Callable[[Engine], None],
) -> Response:
    """Act, between two rows of the audit log: one that cannot be written stops what has not begun.

    The second row says "refused" only where the engine decided so from what it read. After any other failure the
    decision may stand.
    """
    engine = poller.engine
    about = {**asked, "store": engine.url}
    write_audit(user, event, {**about, "outcome": "requested"})
    try:
        act(engine)
    except Exception as error:
        code, is_refusal = type(error).__name__, False
        if isinstance(error, TxnEngineError):
            code, is_refusal = error.code, error.is_refusal
        outcome = f"refused: {code}" if is_refusal else f"failed, outcome unknown: {code}"
        log.warning("%s by %s: %s: %s: %s", event, user, outcome, asked, error)
        _write_outcome(user, event, {**about, "outcome": outcome})
        raise
    log.info("%s by %s: %s", event, user, asked)
    _write_outcome(user, event, {**about, "outcome": "aborted"})
    poller.look_again(wait_ms=LOOK_AGAIN_MS)
    return as_json({"outcome": "aborted"})


def _write_outcome(user: str, event: str, extra: Mapping[str, Any]) -> None:
    """The second row. Where Airflow's database is gone by now the server's log has it; the answer tells what happened
    to the transaction.
    """
    try:
        write_audit(user, event, extra)
    except Exception:
        log.exception("the audit row %s by %s could not be written: %s", event, user, extra)


def write_audit(user: str, event: str, extra: Mapping[str, Any]) -> None:
    """A row of Airflow's audit log, among those of the DAG whose permission it took."""
    from airflow.models import Log
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(
            Log(event=event, owner=user, owner_display_name=user, dag_id=GUARD_DAG, extra=json.dumps(extra))
        )
