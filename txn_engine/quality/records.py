"""The committed records by themselves, beside the rows of the input file, and beside what their consumer made of them.

All is reduced by queries, whatever the number of rows: counts, and at most 20 examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from txn_engine.held import held_type
from txn_engine.quality.anomalies import ABORTED_READ, DUPLICATE, LOST
from txn_engine.quality.canonical import column_text
from txn_engine.quality.declaration import Output, SameRows, SameSet, SqlReduction, Totals, is_of_input
from txn_engine.quality.empty_cells import (
    Reading,
    contradictions,
    empty_cells,
    least_contradicted,
    may_be_empty,
)
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, need, rows_of
from txn_engine.quality.input_file import LINE, UNFIT, UNFIT_ID
from txn_engine.quality.reducer import Reducer
from txn_engine.quality.relations import DUCKDB, IN_OUTPUT, IN_TOPIC, Sides, differing, sides_of
from txn_engine.quality.result import EXAMPLES_MAX, Account, Counted, Example
from txn_engine.quality.visibility import may_repeat
from txn_engine.sql.columns import DIGITS_MAX, inner_type, wide_decimal
from txn_engine.sql.file_parts import OFFSET, PARTITION

LARGEST_MAX = 20
_TIMES, _UNLIKE = "_times", "_unlike"
"""As in `relations`: no column of a topic is called so."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An output beside its topic: how many keys (or rows) either side has, and which differ.

    `differing`: rows of which `IN_TOPIC` and `IN_OUTPUT` say on which side, and how often, they are; of totals they are
    by key, so that both sides of one stand together. `largest`: of totals some that agree, the largest first.
    `anomalies`: by name, where the rows tell which.
    """

    output: Output
    sides: Sides
    rows: int
    wrong: int
    differing: pa.Table
    largest: pa.Table | None
    anomalies: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of a topic: in the view of that name; of how many rows they are; how many wait."""

    view: str
    rows: int
    waiting: int

    @property
    def replayed(self) -> int:
        """How many of the rows have become records."""
        return self.rows - self.waiting


class Reductions:
    """What queries say of this evidence; each is asked once."""

    def __init__(self, evidence: Evidence, reducer: Reducer) -> None:
        self._evidence = evidence
        self._reducer = reducer
        self._views: dict[str, str] = {}
        self._extra: set[str] = set()
        self._compared: dict[str, Compared | EvidenceMissingError] = {}
        self._counted_letters: dict[str, Letters] = {}
        every = (side for rows in evidence.rows.values() for side in (rows.rows, rows.earlier))
        reducer.allow(side for side in every if side is not None)

    # --- records ------------------------------------------------------------------------------------------------

    def record_ids_unique(self) -> Counted:
        """Committed records that share their id with another."""
        view, ids = self._view(self._evidence.check.topic), self._ids
        found, total = self._repeated("repeated_records", view, ids), self._records
        if self._is_part and (met := self._met_before(ids)) is not None:
            topic = self._evidence.check.topic
            found, total, view = met, rows_of(self._evidence, topic).records, self._whole_view(topic)
        if not found:
            return Counted(total, 0)
        columns = ", ".join([*(f"r.{name}" for name in ids), f"r.{PARTITION}", f"r.{OFFSET}"])
        rows = self._reducer.query(
            f"SELECT {columns} FROM {view} AS r JOIN (SELECT * FROM repeated_records LIMIT {EXAMPLES_MAX}) AS twice "
            f"ON {self._same_ids('r', 'twice')} ORDER BY {columns} LIMIT {EXAMPLES_MAX}"
        )
        return Counted(total, found, _examples(rows))

    def _met_before(self, ids: Sequence[str]) -> int | None:
        """How many records share their id with another where a new one does with an earlier one; None where none does.

        All of these ids are in `repeated_records` then.
        """
        topic = self._evidence.check.topic
        listed, view = ", ".join(ids), self._view(topic)
        nulls = " OR ".join(f"{name} IS NULL" for name in ids)
        # Equality lets the files' statistics leave out what no new id can be in; it knows no null.
        is_same = self._same_ids if self._count(f"{view} WHERE {nulls}") else self._equal_ids
        self._reducer.keep(
            "met_ids",
            f"SELECT DISTINCT {listed} FROM {self._earlier_view(topic)} AS e "
            f"SEMI JOIN {view} AS n ON {is_same('e', 'n')}",
        )
        if not self._count("met_ids"):
            return None
        self._reducer.keep(
            "met_records",
            f"SELECT {listed}, count(*) AS {_TIMES} FROM {self._whole_view(topic)} AS w "
            f"SEMI JOIN met_ids AS m ON {self._same_ids('w', 'm')} GROUP BY {listed} "
            f"UNION ALL SELECT r.* FROM repeated_records AS r ANTI JOIN met_ids AS m ON {self._same_ids('r', 'm')}",
        )
        self._reducer.keep("repeated_records", "SELECT * FROM met_records")
        return self._times("repeated_records")

    def input_ids_unique(self) -> Counted:
        """Rows of the file that share their id with another."""
        found = self._repeated("repeated_input", self._fit_input, self._ids)
        if not found:
            return Counted(self._input_count, 0)
        columns = ", ".join([f"i.{LINE}", *(f"i.{name}" for name in self._ids)])
        rows = self._reducer.query(
            f"SELECT {columns} FROM {self._fit_input} AS i "
            f"JOIN (SELECT * FROM repeated_input LIMIT {EXAMPLES_MAX}) AS twice "
            f"ON {self._same_ids('i', 'twice')} ORDER BY i.{LINE} LIMIT {EXAMPLES_MAX}"
        )
        return Counted(self._input_count, found, _examples(rows))

    def no_input_row_missing(self) -> Counted:
        """Rows of the file of which no record is committed."""
        need(self._evidence, "offsets")  # they say whether the topic is whole
        view, columns = self._view(self._evidence.check.topic), ", ".join([LINE, *self._ids])
        self._reducer.keep(
            "missing_rows",
            f"SELECT {columns} FROM {self._fit_input} AS i ANTI JOIN {view} AS r ON {self._same_ids('i', 'r')} "
            f"UNION ALL SELECT {columns} FROM {self._input} WHERE {UNFIT_ID}",
        )
        listed = ", ".join([LINE, *self._ids])
        return self._counted_table("missing_rows", self._input_count, listed, LINE)

    def no_record_beyond_input(self) -> Counted:
        """Committed records that no row of the file is."""
        view = self._view(self._evidence.check.topic)
        columns = ", ".join([*self._ids, PARTITION, OFFSET])
        self._reducer.keep(
            "records_beyond",
            f"SELECT {columns} FROM {view} AS r ANTI JOIN {self._fit_input} AS i ON {self._same_ids('i', 'r')}",
        )
        found = self._counted_table("records_beyond", self._records, columns, f"{PARTITION}, {OFFSET}")
        if self._evidence.check.dead_letter_topic is None:
            return found
        # What a replay has mended is no row of the file as it stands.
        return replace(found, wrong=max(found.wrong - self._letters(None).replayed, 0))

    def row_values_equal(self) -> Counted:
        """Committed records that differ from their row of the file: the first one of that id. Raises
        `EvidenceMissingError` where nobody says what the topic calls a column of the file.
        """
        self._need_names()
        view, quoted = self._view(self._evidence.check.topic), self._reducer.dialect.column
        schema = rows_of(self._evidence, self._evidence.check.topic).schema
        names = self._compared_columns
        self._need_exact(self._evidence.check.topic, names)
        unlike = [f"i.{UNFIT} <> ''"]
        for name in names:
            ours, theirs = (f"{side}.{quoted(name)}" for side in ("r", "i"))
            if pa.types.is_floating(held_type(schema.field(name).type)):  # SQL takes -0.0 and 0.0 for equal
                ours, theirs = f"CAST({ours} AS STRING)", f"CAST({theirs} AS STRING)"
            unlike.append(f"{ours} IS DISTINCT FROM {theirs}")
        pairs = ", ".join(
            f"r.{quoted(name)} AS {quoted(f'_r_{name}')}, i.{quoted(name)} AS {quoted(f'_i_{name}')}"
            for name in names
        )
        columns = ", ".join([*(f"r.{name}" for name in self._ids), f"r.{PARTITION}", f"r.{OFFSET}"])
        self._reducer.keep(
            "matched_rows",
            f"SELECT {columns}, i.{LINE}, i.{UNFIT}, {pairs}, ({' OR '.join(unlike)}) AS {_UNLIKE} "
            f"FROM {view} AS r JOIN {self._first_of_id(self._input)} AS i ON {self._same_ids('i', 'r')}",
        )
        counts = self._reducer.query(
            f"SELECT count(*) AS matched, coalesce(sum(CASE WHEN {_UNLIKE} THEN 1 ELSE 0 END), 0) AS wrong "
            "FROM matched_rows"
        ).to_pylist()[0]
        rows = self._reducer.query(
            f"SELECT * FROM matched_rows WHERE {_UNLIKE} ORDER BY {PARTITION}, {OFFSET} LIMIT {EXAMPLES_MAX}"
        )
        self._reducer.drop("matched_rows")
        return Counted(int(counts["matched"]), int(counts["wrong"]), self._differences(rows, names))

    def _need_names(self) -> None:
        found = self._evidence.input
        if found is None:
            return
        topic = self._evidence.check.topic
        alone = self._evidence.columns_not_in_file
        if alone and (found.unknown or not set(found.compared) - set(self._evidence.check.record_id)):
            only = f"{', '.join(found.unknown)} only in the file, " if found.unknown else ""
            raise EvidenceMissingError(
                f"{only}{', '.join(alone)} only in {topic}: say what the topic calls a column of the file, "
                "`input: {columns: {...}}`, with null for one that was not loaded"
            )

    def no_offset_twice(self) -> Counted:
        """Records that stand at an offset which another one has."""
        total = wrong = 0
        examples: list[Example] = []
        for topic in self._evidence.check.topics:
            rows = rows_of(self._evidence, topic)
            total += rows.looked_at
            if not may_repeat(rows):
                continue
            found = self._repeated("repeated_offsets", self._view(topic), [PARTITION, OFFSET])
            wrong += found
            places = self._reducer.query(
                f"SELECT {PARTITION}, {OFFSET} FROM repeated_offsets ORDER BY 1, 2 LIMIT {EXAMPLES_MAX}"
            )
            examples += [{"topic": topic, **example} for example in _examples(places)]
        return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))

    # --- dead letters -------------------------------------------------------------------------------------------

    def input_accounted(self) -> Counted:
        """Rows of the file that are neither a record nor a dead letter that waits, or both."""
        letters, input_rows = self._letters(None), self._input_count
        need(self._evidence, "offsets")
        beyond = self._lines_beyond(letters)
        return _accounted(
            input_rows, rows_of(self._evidence, self._evidence.check.topic).records, letters, beyond
        )

    def output_accounted(self, output: Output) -> Counted:
        """Records that are neither in the output nor a dead letter that waits, or both."""
        need(self._evidence, "offsets")
        source, target = (
            rows_of(self._evidence, topic).records for topic in (self._evidence.check.topic, output.topic)
        )
        return _accounted(source, target, self._letters(output))

    def _letters(self, output: Output | None) -> Letters:
        """The dead letters of an output, or of the topic's own loads. They are looked up once, all of them: few."""
        check = self._evidence.check
        dead, topic = (
            (check.dead_letter_topic, check.topic)
            if output is None
            else (
                output.dead_letter_topic,
                output.topic,
            )
        )
        name = f"letters_{topic}"
        if name not in self._counted_letters:
            self._counted_letters[name] = self._count_letters(str(dead), topic, is_of_file=output is None)
        return self._counted_letters[name]

    def _count_letters(self, dead: str, topic: str, *, is_of_file: bool) -> Letters:
        need(self._evidence, "letters")
        reducer, view = self._reducer, f"letters_{len(self._counted_letters)}"
        reducer.keep(
            view,
            f"SELECT source_file, source_line, source_topic, source_partition, source_offset, tries, "
            f"{self._waits(dead)} AS waits FROM {self._whole_view(dead)} "
            f"WHERE topic = {reducer.dialect.text(topic)}",
        )
        source = "source_line" if is_of_file else "source_offset"
        (found,) = reducer.query(
            "SELECT count(CASE WHEN tries = 1 THEN 1 END) AS rows, count(CASE WHEN waits THEN 1 END) AS waiting, "
            f"count(CASE WHEN {source} IS NULL THEN 1 END) AS placeless FROM {view}"
        ).to_pylist()
        if found["placeless"] and not is_of_file:
            raise EvidenceMissingError(
                f"{found['placeless']:,} dead letters for {topic} do not say of which record: keep _partition and "
                "_offset in what is written"
            )
        return Letters(view, int(found["rows"]), int(found["waiting"]))

    def _waits(self, dead: str) -> str:
        """Which letters were not replayed yet."""
        positions = self._evidence.replayed_letters.get(dead, {})
        done = " OR ".join(
            f"({PARTITION} = {int(partition)} AND {OFFSET} < {int(offset)})"
            for partition, offset in sorted(positions.items())
        )
        return f"NOT ({done})" if done else "TRUE"

    def _without_letters(self, view: str, output: Output) -> str:
        """The view without the records that became dead letters."""
        if output.dead_letter_topic is None:
            return view
        letters = self._letters(output)
        name = f"{view}_but_{letters.view}"
        topic = self._reducer.dialect.text(self._evidence.check.topic)
        self._reducer.keep_view(
            name,
            f"SELECT r.* FROM {view} AS r ANTI JOIN (SELECT * FROM {letters.view} WHERE source_topic = {topic}) AS l "
            f"ON r.{PARTITION} = l.source_partition AND r.{OFFSET} = l.source_offset",
        )
        return name

    def _lines_beyond(self, letters: Letters) -> int:
        """Letters that are of no row of the file."""
        (found,) = self._reducer.query(
            f"SELECT count(*) AS beyond FROM {letters.view} AS l ANTI JOIN {self._all_input} AS i "
            f"ON l.source_line = i.{LINE} AND {self._of_this_file('l.source_file')}"
        ).to_pylist()
        return int(found["beyond"])

    def _of_this_file(self, column: str) -> str:
        """Whether a letter's file is the input file, by its name: the path may be another now."""
        name = self._evidence.input.path.name if self._evidence.input else ""
        text = self._reducer.dialect.text(name)
        return f"({column} = {text} OR substr({column}, -{len(name) + 1}) = concat('/', {text}))"

    # --- rows for suites ----------------------------------------------------------------------------------------

    def frame(self, topic: str, where: str, *, new_only: bool) -> tuple[Any, int]:
        """Committed rows of a topic, as Great Expectations takes them, and their number; `where`: which ones."""
        view = self._view(topic) if new_only else self._whole_view(topic)
        names = rows_of(self._evidence, topic).schema.names
        self._need_exact(topic, names)
        names = [*names, PARTITION, OFFSET]
        rows = f"FROM {view}" + (f" WHERE {where}" if where else "")
        (counted,) = self._reducer.query(f"SELECT count(*) AS held {rows}").to_pylist()
        listed = ", ".join(self._reducer.dialect.column(name) for name in names)
        return self._reducer.frame(f"SELECT {listed} {rows}", int(counted["held"])), int(counted["held"])

    def _need_exact(self, topic: str, names: Sequence[str]) -> None:
        """Raise `EvidenceMissingError` unless SQL holds these columns exactly."""
        schema = rows_of(self._evidence, topic).schema
        for name in names:
            if (wide := wide_decimal(schema.field(name).type)) is not None:
                raise EvidenceMissingError(
                    f"column {name!r} of {topic} has {wide}, and SQL keeps at most {DIGITS_MAX} digits of a decimal"
                )

    # --- outputs ------------------------------------------------------------------------------------------------

    def output(self, name: str, output: Output) -> Counted:
        """Keys, or rows, of an output that are not what its topic comes to."""
        found = self.compared(name, output)
        return Counted(found.rows, found.wrong, _examples(found.differing), found.anomalies)

    def compared(self, name: str, output: Output) -> Compared:
        """Both sides of an output. Raises EvidenceMissingError where one could not be had."""
        if name not in self._compared:
            try:
                self._compared[name] = self._compare(output)
            except EvidenceMissingError as missing:
                self._compared[name] = missing
        found = self._compared[name]
        if isinstance(found, EvidenceMissingError):
            raise found
        return found

    def _compare(self, output: Output) -> Compared:
        """What is new on both sides agrees, or all there is does: then what was proved before stands."""
        need(self._evidence, "offsets")  # they say whether the histories are whole
        topic = self._evidence.check.topic
        if self._is_part and not isinstance(output.relation, SqlReduction):
            source = self._without_letters(self._view(topic), output)
            found = self._compare_views(output, source, self._view(output.topic))
            if not found.wrong:
                return found
        source = self._without_letters(self._whole_view(topic), output)
        letters = None if output.dead_letter_topic is None else self._letters(output)
        return self._compare_views(output, source, self._whole_view(output.topic), letters)

    def _compare_views(
        self, output: Output, source: str, target: str, letters: Letters | None = None
    ) -> Compared:
        """`letters`: of both views' whole histories; records that replays of them have made are not the source's."""
        check, reducer = self._evidence.check, self._reducer
        if self._evidence.input is not None and is_of_input(check, output):
            source = self._input
        sides = sides_of(
            output.relation,
            reducer.dialect,
            topic_view=source,
            output_view=target,
            topic_schema=rows_of(self._evidence, check.topic).schema,
            output_schema=rows_of(self._evidence, output.topic).schema,
        )
        if isinstance(output.relation, SqlReduction):
            sides = self._keep_queries(output.relation, source, target)
            ours, theirs = f"({sides.topic}) AS of_topic", f"({sides.output}) AS of_output"
        else:
            ours, theirs = "side_topic", "side_output"
            reducer.keep(ours, sides.topic)
            reducer.keep(theirs, sides.output)
        reducer.keep("differing_rows", differing(sides.columns, reducer.dialect, ours, theirs))
        rows = self._count("side_topic") + self._only_in_output(sides)
        largest = None
        if isinstance(output.relation, Totals):
            wrong, found = self._by_key(sides)
            largest = self._largest(sides)
        else:
            wrong, found = self._differing_keys(sides), self._some_differing(sides)
        if letters is not None:
            wrong = self._wrong_beyond(letters.replayed, wrong)
        signs = self._signs() if wrong and isinstance(output.relation, SameRows | SameSet) else None
        for name in ("side_topic", "side_output", "differing_rows"):
            reducer.drop(name)
        return Compared(output, sides, rows, wrong, found, largest, signs)

    def _wrong_beyond(self, replayed: int, differing: int) -> int:
        """How many rows are not as often on both sides, but for as many more in the output as replays have made."""
        (found,) = self._reducer.query(
            f"SELECT coalesce(sum({_beyond(IN_TOPIC, IN_OUTPUT)}), 0) AS missing, "
            f"coalesce(sum({_beyond(IN_OUTPUT, IN_TOPIC)}), 0) AS more "
            "FROM differing_rows"
        ).to_pylist()
        if not found["missing"] and found["more"] == replayed:
            return 0
        return max(differing, 1)

    def _signs(self) -> tuple[str, ...]:
        """Rows that the output lacks, has more often, or has and the topic has not."""
        sides = {
            LOST: f"{IN_OUTPUT} < {IN_TOPIC} OR {IN_TOPIC} = 0",
            DUPLICATE: f"{IN_OUTPUT} > {IN_TOPIC} AND {IN_TOPIC} > 0",
            ABORTED_READ: f"{IN_TOPIC} = 0",
        }
        counts = ", ".join(
            f"count(CASE WHEN {rule} THEN 1 END) AS c{at}" for at, rule in enumerate(sides.values())
        )
        (found,) = self._reducer.query(f"SELECT {counts} FROM differing_rows").to_pylist()
        return tuple(name for at, name in enumerate(sides) if found[f"c{at}"])

    def _only_in_output(self, sides: Sides) -> int:
        keys = ", ".join(self._reducer.dialect.column(name) for name in sides.keys)
        only = f"SELECT {keys} FROM differing_rows GROUP BY {keys} HAVING sum({IN_TOPIC}) = 0"
        return int(
            self._reducer.query(f"SELECT count(*) AS held FROM ({only}) AS only_there").to_pylist()[0]["held"]
        )

    def _by_key(self, sides: Sides) -> tuple[int, pa.Table]:
        """How many keys differ, and some of them with both sides in one row."""
        quoted = self._reducer.dialect.column
        keys = ", ".join(quoted(name) for name in sides.keys)
        sums = ", ".join(
            f"coalesce(max(CASE WHEN {side} > 0 THEN {quoted(name)} END), 0) AS {quoted(f'{side}_{name}')}"
            for name in sides.values
            for side in (IN_TOPIC, IN_OUTPUT)
        )
        by_key = f"SELECT {keys}, {sums} FROM differing_rows GROUP BY {keys}"
        counted = self._reducer.query(f"SELECT count(*) AS keys FROM ({by_key}) AS by_key").to_pylist()[0][
            "keys"
        ]
        return int(counted), self._reducer.query(f"{by_key} ORDER BY {keys} LIMIT {EXAMPLES_MAX}")

    def _largest(self, sides: Sides) -> pa.Table:
        quoted = self._reducer.dialect.column
        keys = ", ".join(quoted(name) for name in sides.keys)
        same = " AND ".join(f"s.{quoted(name)} IS NOT DISTINCT FROM d.{quoted(name)}" for name in sides.keys)
        return self._reducer.query(
            f"SELECT s.* FROM side_topic AS s ANTI JOIN (SELECT {keys} FROM differing_rows) AS d ON {same} "
            f"ORDER BY abs(s.{quoted(sides.values[0])}) DESC LIMIT {LARGEST_MAX}"
        )

    def _differing_keys(self, sides: Sides) -> int:
        """How many keys differ; of relations without one, rows."""
        keys = ", ".join(self._reducer.dialect.column(name) for name in sides.keys)
        distinct = f"SELECT DISTINCT {keys} FROM differing_rows"
        return int(
            self._reducer.query(f"SELECT count(*) AS held FROM ({distinct}) AS keys").to_pylist()[0]["held"]
        )

    def _some_differing(self, sides: Sides) -> pa.Table:
        order = ", ".join(str(number + 1) for number in range(len(sides.columns)))
        return self._reducer.query(f"SELECT * FROM differing_rows ORDER BY {order} LIMIT {EXAMPLES_MAX}")

    def _keep_queries(self, relation: SqlReduction, source: str, target: str) -> Sides:
        """Both results, each taken twice, over rows that come one way round and the other."""
        for name, query, known, view in (
            ("side_topic", relation.topic, "topic", source),
            ("side_output", relation.output, "output", target),
        ):
            self._reducer.keep_users(name, query, {known: view}, backwards=False)
            self._reducer.keep_users("side_again", query, {known: view}, backwards=True)
            columns = self._reducer.columns(name).names
            self._reducer.keep(
                "differing_rows", differing(columns, self._reducer.dialect, name, "side_again")
            )
            if self._count("differing_rows"):
                raise EvidenceMissingError(
                    f"the query over {known} gives other rows where its input comes in another order"
                )
        self._reducer.drop("side_again")
        ours, theirs = (self._reducer.columns(name) for name in ("side_topic", "side_output"))
        if ours.names != theirs.names:
            raise EvidenceMissingError("the two queries do not give the same columns, in the same order")
        if own := [name for name in ours.names if name.startswith("_")]:
            raise EvidenceMissingError(
                f"column {own[0]!r} of a query begins with an underscore: give it another name"
            )
        sides = (ours, theirs)
        odd = [
            name
            for name in ours.names
            if any(inner_type(side.field(name).type, pa.types.is_floating) for side in sides)
        ]
        if odd:
            raise EvidenceMissingError(
                f"column {odd[0]} of a query is a float, which does not compare exactly"
            )
        exact = ", ".join(self._exact_column(name, *sides) for name in ours.names)
        return Sides(
            f"SELECT {exact} FROM side_topic", f"SELECT {exact} FROM side_output", tuple(ours.names), ()
        )

    def _exact_column(self, name: str, topic: pa.Schema, output: pa.Schema) -> str:
        """A column of both queries as it is compared: exactly, or not at all. SQL finds a type that two others go into,
        and rounds a decimal for it, or makes text of anything.
        """
        dialect = self._reducer.dialect
        kinds = [schema.field(name).type for schema in (topic, output)]
        types = [self._reducer.types(side)[name] for side in ("side_topic", "side_output")]
        quoted = dialect.column(name)
        if types[0] == types[1]:
            # a query may have given the text a collation, under which other texts are equal
            is_collated = dialect is DUCKDB and pa.types.is_string(kinds[0]) and types[0] == "VARCHAR"
            return f'{quoted} COLLATE "C" AS {quoted}' if is_collated else quoted
        if not all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds):
            raise EvidenceMissingError(
                f"column {name!r} is {types[0]} in the query over topic and {types[1]} in the query over output: "
                "cast both to one type"
            )
        scale = max(kind.scale if pa.types.is_decimal(kind) else 0 for kind in kinds)
        return f"CAST({quoted} AS DECIMAL({DIGITS_MAX},{scale})) AS {quoted}"  # exact, or an error

    # --- views --------------------------------------------------------------------------------------------------

    def _view(self, topic: str) -> str:
        """The view of a topic's committed rows, made when it is first asked for."""
        rows = rows_of(self._evidence, topic)
        if topic not in self._views:
            name = f"rows_{len(self._views)}"
            self._reducer.add(name, rows.rows)
            self._views[topic] = name
        return self._views[topic]

    @property
    def _is_part(self) -> bool:
        """Whether an earlier proof is gone on from."""
        return any(rows.earlier is not None for rows in self._evidence.rows.values())

    def _earlier_view(self, topic: str) -> str:
        """The view of the rows that an earlier proof has looked at."""
        name, rows = f"{self._view(topic)}_earlier", rows_of(self._evidence, topic).earlier
        if name not in self._extra:
            self._extra.add(name)
            if rows is None:
                raise EvidenceMissingError(f"no earlier rows of {topic}")
            self._reducer.add(name, rows)
        return name

    def _whole_view(self, topic: str) -> str:
        """The view of all committed rows."""
        if rows_of(self._evidence, topic).earlier is None:
            return self._view(topic)
        name = f"{self._view(topic)}_whole"
        if name not in self._extra:
            self._extra.add(name)
            parts = (self._earlier_view(topic), self._view(topic))
            self._reducer.keep_view(name, " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts))
        return name

    @cached_property
    def _input(self) -> str:
        """The rows of the file that became no dead letters, their empty cells as the topic reads them."""
        kept = self._kept_input
        names = self._with_empty_cells(kept)
        if not names:
            return kept
        ids = {name: kind for name, kind in names.items() if name in self._ids}
        others = {name: kind for name, kind in names.items() if name not in ids}
        self._keep_read("keyed_input", kept, self._readings_of_ids(ids))
        self._keep_read("read_input", "keyed_input", self._readings("keyed_input", others))
        return "read_input"

    def _with_empty_cells(self, view: str) -> Mapping[str, pa.DataType]:
        """The columns of the file whose empty cells may be read in several ways, and their types."""
        if self._evidence.check.input_null_values is not None:
            return {}
        schema, quoted = (
            rows_of(self._evidence, self._evidence.check.topic).schema,
            self._reducer.dialect.column,
        )
        kinds = {name: schema.field(name).type for name in self._compared_columns}
        found = {quoted(name): kind for name, kind in kinds.items() if may_be_empty(kind)}
        if not found:
            return {}
        (counts,) = self._reducer.query(f"SELECT {empty_cells(found)} FROM {view}").to_pylist()
        return {name: kind for at, (name, kind) in enumerate(found.items()) if counts[f"c{at}"]}

    def _readings_of_ids(self, ids: Mapping[str, pa.DataType]) -> Mapping[str, Reading]:
        """By what the topic has: a record is found by its id, so no pairs of rows can be asked."""
        if not ids:
            return {}
        view, found = self._view(self._evidence.check.topic), {}
        (nulls,) = self._reducer.query(
            f"SELECT {', '.join(f'count(*) - count({name}) AS c{at}' for at, name in enumerate(ids))} FROM {view}"
        ).to_pylist()
        (both,) = self._reducer.query(f"SELECT {empty_cells(ids)} FROM {view}").to_pylist()
        for at, name in enumerate(ids):
            has_null, has_empty = nulls[f"c{at}"] > 0, both[f"c{at}"] > nulls[f"c{at}"]
            if has_null != has_empty:
                found[name] = Reading.NULL if has_null else Reading.EMPTY_TEXT
        return found

    def _readings(self, view: str, columns: Mapping[str, pa.DataType]) -> Mapping[str, Reading]:
        """By the records of these rows."""
        if not columns:
            return {}
        (found,) = self._reducer.query(
            f"SELECT {contradictions(columns)} FROM {self._view(self._evidence.check.topic)} AS r "
            f"JOIN {self._first_of_id(view)} AS i ON {self._same_ids('i', 'r')}"
        ).to_pylist()
        return least_contradicted(tuple(columns), found)

    def _keep_read(self, name: str, view: str, readings: Mapping[str, Reading]) -> None:
        """The rows of the file with these columns as the readings have them."""
        listed = []
        for field in self._reducer.columns(view):
            column = self._reducer.dialect.column(field.name)
            reading = readings.get(column, Reading.BY_QUOTES)
            listed.append(f"{reading.of(column, field.type)} AS {column}")
        self._reducer.keep_view(name, f"SELECT {', '.join(listed)} FROM {view}")

    def _first_of_id(self, view: str) -> str:
        """The rows of the file with an id that no row before them has."""
        first = f"SELECT min({LINE}) AS first_line FROM {view} WHERE NOT {UNFIT_ID} GROUP BY {', '.join(self._ids)}"
        return f"(SELECT f.* FROM {view} AS f JOIN ({first}) AS g ON f.{LINE} = g.first_line)"

    @cached_property
    def _kept_input(self) -> str:
        """The rows of the file, but for those that became dead letters."""
        if self._evidence.check.dead_letter_topic is None:
            return self._all_input
        self._reducer.keep_view(
            "kept_input",
            f"SELECT i.* FROM {self._all_input} AS i ANTI JOIN {self._letters(None).view} AS l "
            f"ON i.{LINE} = l.source_line AND {self._of_this_file('l.source_file')}",
        )
        return "kept_input"

    @cached_property
    def _all_input(self) -> str:
        found = self._evidence.input
        if found is None:
            raise EvidenceMissingError("no input file was given")
        if isinstance(found.rows, pa.Table):
            self._reducer.add("input_rows", found.rows)
        else:
            self._reducer.add_parquet("input_rows", found.rows)
        return "input_rows"

    @cached_property
    def _fit_input(self) -> str:
        """The rows of the file whose id the topic's types can hold."""
        self._reducer.keep_view("fit_input", f"SELECT * FROM {self._input} WHERE NOT {UNFIT_ID}")
        return "fit_input"

    @property
    def _input_count(self) -> int:
        return self._evidence.input.count if self._evidence.input else 0

    @property
    def _records(self) -> int:
        return rows_of(self._evidence, self._evidence.check.topic).looked_at

    @property
    def _ids(self) -> list[str]:
        return [self._reducer.dialect.column(name) for name in self._evidence.check.record_id]

    @property
    def _compared_columns(self) -> Sequence[str]:
        return self._evidence.input.compared if self._evidence.input else ()

    def _same_ids(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in self._ids)

    def _equal_ids(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{name} = {right}.{name}" for name in self._ids)

    # --- counting -----------------------------------------------------------------------------------------------

    def _repeated(self, name: str, view: str, columns: Sequence[str]) -> int:
        """How many rows share these columns with another; the values are kept under that name."""
        listed = ", ".join(columns)
        self._reducer.keep(
            name, f"SELECT {listed}, count(*) AS {_TIMES} FROM {view} GROUP BY {listed} HAVING count(*) > 1"
        )
        return self._times(name)

    def _times(self, name: str) -> int:
        found = self._reducer.query(f"SELECT coalesce(sum({_TIMES}), 0) AS {_TIMES} FROM {name}").to_pylist()[
            0
        ]
        return int(found[_TIMES])

    def _count(self, name: str) -> int:
        return int(self._reducer.query(f"SELECT count(*) AS held FROM {name}").to_pylist()[0]["held"])

    def _counted_table(self, name: str, total: int, columns: str, order: str) -> Counted:
        wrong = self._count(name)
        rows = self._reducer.query(f"SELECT {columns} FROM {name} ORDER BY {order} LIMIT {EXAMPLES_MAX}")
        self._reducer.drop(name)
        return Counted(total, wrong, _examples(rows))

    def _differences(self, rows: pa.Table, names: Sequence[str]) -> tuple[Example, ...]:
        """Each record and its row: where they stand, and the columns in which they differ."""
        texts, shown = _texts(rows), _shown(rows)
        found = []
        for at in range(rows.num_rows):
            cells = {name: values[at] for name, values in texts.items()}
            ours, theirs = ({name: shown[f"_{side}_{name}"][at] for name in names} for side in ("r", "i"))
            unlike = [name for name in names if ours[name] != theirs[name]]
            unfit = cells[UNFIT]
            seen = [f"{name} {theirs[name]}" for name in unlike if f"{name}=" not in unfit]
            found.append(
                {name: cells[name] for name in self._evidence.check.record_id}
                | {"line": cells[LINE], "partition": cells[PARTITION], "offset": cells[OFFSET]}
                | {
                    "in the file": ", ".join([*seen, *([unfit] if unfit else [])]),
                    "in the topic": ", ".join(f"{name} {ours[name]}" for name in unlike),
                }
            )
        return tuple(found)


def _beyond(more: str, less: str) -> str:
    """By how much a row is more often on one side than on the other."""
    return f"CASE WHEN {more} > {less} THEN {more} - {less} ELSE 0 END"


def _accounted(rows: int, records: int, letters: Letters, beyond: int = 0) -> Counted:
    """Rows = records + letters that wait; `beyond`: letters of no row."""
    account = Account(rows, records, letters.waiting)
    example = {name.replace("_", " "): f"{number:,}" for name, number in asdict(account).items()}
    wrong = max(abs(rows - records - letters.waiting), beyond)
    return Counted(rows, wrong, (example,), account=account)


def _texts(rows: pa.Table) -> Mapping[str, list[str]]:
    """Every column written out exactly."""
    found: dict[str, list[Any]] = {}
    for name in rows.column_names:
        column = rows.column(name)
        found[name] = column_text(column).to_pylist() if rows.num_rows else []
    return found


def _shown(rows: pa.Table) -> Mapping[str, list[str]]:
    """Every column as it is shown beside another: nothing and the empty text are not the same."""
    return {
        name: [
            "(nothing)" if is_null else text or '""'
            for text, is_null in zip(texts, rows.column(name).is_null().to_pylist(), strict=True)
        ]
        for name, texts in _texts(rows).items()
    }


def _examples(rows: pa.Table) -> tuple[Example, ...]:
    """The rows as they are shown: what queries have added to the columns without its underscore, where no column is
    called so.
    """
    texts = _texts(rows)
    shown = {name: plain if (plain := name.removeprefix("_")) not in texts else name for name in texts}
    return tuple(
        {shown[name]: values[at] for name, values in texts.items()}
        for at in range(min(rows.num_rows, EXAMPLES_MAX))
    )
