"""docs/OPERATORS.md, from the code."""

from __future__ import annotations

import inspect
import textwrap

from tests.support.servers import REPOSITORY

PAGE = REPOSITORY / "docs" / "OPERATORS.md"
_HEAD = """\
# Operators, sensors, hook

Made from the code by `make docs`; do not edit. What is imported from `txn_engine_airflow`, each with its arguments and
what it promises. *Template*: the argument may hold Jinja. Every operator and sensor also takes what Airflow's own take.
How they work together: [FIRST_PIPELINE.md](FIRST_PIPELINE.md); DAGs that use them:
[example_dags](../plugins/txn_engine_airflow/example_dags).

"""


def page() -> str:
    """The page as the code has it now."""
    import txn_engine_airflow as package
    from txn_engine_airflow import assets

    described = [
        package.TxnProduceOperator,
        package.TxnConsumeOperator,
        package.TxnSparkConsumeOperator,
        package.TxnToPostgresOperator,
        package.PostgresToTxnOperator,
        package.TxnCutOperator,
        package.TxnAbortOperator,
        package.NewRecordsSensor,
        package.GroupCaughtUpSensor,
        package.TransactionFinalSensor,
        package.TxnEngineHook,
        package.watched_topic,
        package.open_engine,
        assets.topic_asset,
        assets.topic_alias,
        assets.topic_schedule,
    ]
    return _HEAD + "\n".join(_section(each) for each in described)


def arguments(described: object) -> dict[str, inspect.Parameter]:
    """The arguments of a function, or of a class and its parents in the package, by name."""
    found: dict[str, inspect.Parameter] = {}
    for owner in inspect.getmro(described) if inspect.isclass(described) else (described,):
        if not owner.__module__.startswith("txn_engine_airflow"):
            continue
        call = owner.__dict__.get("__init__") if inspect.isclass(owner) else owner
        if call is None:
            continue
        for name, parameter in inspect.signature(inspect.unwrap(call)).parameters.items():
            if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                found.setdefault(name, parameter)
    return found


def _section(described: object) -> str:
    name = described.__name__  # type: ignore[attr-defined]
    lines = [f"## {name}", "", "| argument | type | default | template |", "|---|---|---|---|"]
    templates = getattr(described, "template_fields", ())
    for argument, parameter in arguments(described).items():
        kind = str(parameter.annotation).removesuffix(" | NotGiven").replace("|", "or")
        default = "required" if parameter.default is inspect.Parameter.empty else f"`{parameter.default!r}`"
        template = "yes" if argument in templates else ""
        lines.append(f"| `{argument}` | `{kind}` | {default} | {template} |")
    doc = inspect.getdoc(described) or ""
    return "\n".join([*lines, "", textwrap.dedent(doc), ""])
