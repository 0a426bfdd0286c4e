"""A few hundred rows for each table of TPC-H, in its types, so that its queries find something."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

QUERIES = [
    query.strip()
    for query in Path(__file__).with_name("tpch.sql").read_text(encoding="utf-8").split(";\n")
    if query.strip()
]
MONEY = pa.decimal128(15, 2)
SCHEMAS = {
    "region": "r_regionkey int, r_name str, r_comment str",
    "nation": "n_nationkey int, n_name str, n_regionkey int, n_comment str",
    "supplier": "s_suppkey int, s_name str, s_address str, s_nationkey int, s_phone str,"
    " s_acctbal money, s_comment str",
    "customer": "c_custkey int, c_name str, c_address str, c_nationkey int, c_phone str, c_acctbal money,"
    " c_mktsegment str, c_comment str",
    "part": "p_partkey int, p_name str, p_mfgr str, p_brand str, p_type str, p_size int, p_container str,"
    " p_retailprice money, p_comment str",
    "partsupp": "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost money, ps_comment str",
    "orders": "o_orderkey int, o_custkey int, o_orderstatus str, o_totalprice money, o_orderdate date,"
    " o_orderpriority str, o_clerk str, o_shippriority int, o_comment str",
    "lineitem": "l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, l_quantity money,"
    " l_extendedprice money, l_discount money, l_tax money, l_returnflag str, l_linestatus str, l_shipdate date,"
    " l_commitdate date, l_receiptdate date, l_shipinstruct str, l_shipmode str, l_comment str",
}
_TYPES = {"int": pa.int64(), "str": pa.string(), "money": MONEY, "date": pa.date32()}
_VALUES = {
    "r_name": ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"],
    "n_name": ["ALGERIA", "BRAZIL", "CHINA", "FRANCE", "EGYPT", "KENYA", "PERU", "JAPAN", "GERMANY", "IRAN"],
    "c_mktsegment": ["BUILDING", "MACHINERY"],
    "p_name": ["forest green", "almond blue", "lime green"],
    "p_brand": ["Brand#12", "Brand#23", "Brand#45"],
    "p_type": ["PROMO BRASS", "MEDIUM POLISHED TIN", "SMALL BRASS"],
    "p_container": ["SM CASE", "MED BOX", "MED BAG"],
    "o_orderstatus": ["F", "O"],
    "o_orderpriority": ["1-URGENT", "2-HIGH", "5-LOW"],
    "o_comment": ["special packages requests", "none"],
    "s_comment": ["Customer Complaints", "fine", "good", "well"],
    "l_returnflag": ["R", "A", "N"],
    "l_linestatus": ["F", "O"],
    "l_shipinstruct": ["DELIVER IN PERSON", "NONE"],
    "l_shipmode": ["MAIL", "SHIP", "AIR"],
    "p_size": [15, 49, 14, 3],
}
_COUNTS = {"region": 5, "nation": 10, "supplier": 20, "customer": 100, "part": 40, "orders": 300}
_KEYS = {"regionkey": 5, "nationkey": 10, "suppkey": 20, "custkey": 100, "partkey": 40, "orderkey": 300}


def tables() -> dict[str, pa.Table]:
    """The eight tables."""
    dice = random.Random(22)
    pairs = [(part, supplier) for part in range(40) for supplier in range(part % 5, 20, 5)]
    made = {name: _table(name, count, dice) for name, count in _COUNTS.items()}
    supplied = {"ps_partkey": [each[0] for each in pairs], "ps_suppkey": [each[1] for each in pairs]}
    made["partsupp"] = _table("partsupp", len(pairs), dice, supplied)
    ordered = [dice.choice(pairs) for _ in range(1_200)]
    lines = {"l_partkey": [each[0] for each in ordered], "l_suppkey": [each[1] for each in ordered]}
    made["lineitem"] = _table("lineitem", len(ordered), dice, lines)
    return made


def _table(name: str, count: int, dice: random.Random, given: dict[str, list[Any]] | None = None) -> pa.Table:
    fields = [column.split() for column in SCHEMAS[name].split(",")]
    schema = pa.schema([(column, _TYPES[kind]) for column, kind in fields])
    own = fields[0][0] if given is None else ""
    columns = [
        list(range(count))
        if column == own
        else (given or {}).get(column) or _values(column, kind, count, dice)
        for column, kind in fields
    ]
    if name in ("region", "nation"):
        columns[1] = _VALUES[fields[1][0]][:count]
    return pa.Table.from_arrays(
        [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema=schema
    )


def _values(column: str, kind: str, count: int, dice: random.Random) -> list[Any]:
    ending = column.partition("_")[2]
    if column in _VALUES:
        return [dice.choice(_VALUES[column]) for _ in range(count)]
    if ending in _KEYS:
        most = 50 if column == "o_custkey" else _KEYS[ending]  # half of the customers have no orders
        return [dice.randrange(most) for _ in range(count)]
    if ending in ("discount", "tax"):
        return [Decimal(dice.randrange(11)).scaleb(-2) for _ in range(count)]
    if ending == "quantity":
        return [Decimal(dice.randrange(1, 51)) for _ in range(count)]
    if kind == "money":
        return [Decimal(dice.randrange(10_000_000)).scaleb(-2) for _ in range(count)]
    if kind == "date":
        return [dt.date(1992, 1, 1) + dt.timedelta(dice.randrange(2_500)) for _ in range(count)]
    if kind == "int":
        return [dice.randrange(1, 10_000) for _ in range(count)]
    if ending == "phone":
        return [f"{dice.choice((13, 31, 44))}-{number:03}" for number in range(count)]
    return [f"{column} {number}" for number in range(count)]
