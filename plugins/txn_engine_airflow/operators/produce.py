"""`TxnProduceOperator`: a task that loads records into a topic, once for each run, however often it is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.decorator import determine_kwargs

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.deployment import deployment_spark_conf, named_checks, permitted_input_file
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.arguments import hidden, shown
from txn_engine_airflow.operators.catching_up import check_files_are_of_the_run, is_template_of_the_run
from txn_engine_airflow.operators.identity import (
    checked_identity,
    checked_transactional_id,
    identity_of,
    place_of,
)
from txn_engine_airflow.operators.killing import Killable, ended_by_a_kill
from txn_engine_airflow.operators.rendered import anything, given_in, or_none, take_rendered, text, texts
from txn_engine_airflow.operators.seen_files import changed_files, note_files
from txn_engine_airflow.operators.transactions import (
    ForgottenRuns,
    answered,
    check_forgotten_runs,
    commit_run,
    fenced_means_retry,
    has_committed_before,
    parts_of,
    report_folder_of,
    timeout_ms_of,
    told_load,
    with_outlets,
)
from txn_engine_airflow.spark_tasks import kind_of_failure_alone, task_spark, vote_told

if TYPE_CHECKING:
    from txn_engine import Engine, RecordMetadata
    from txn_engine.loading import DeadLetters, Manifest
    from txn_engine.loading.manifest import SeenFile
    from txn_engine.log.topics import Topic
    from txn_engine.producer import Producer
    from txn_engine.row_checks import RowCheck
    from txn_engine.spark.dead_letters import DeadLettersTo
    from txn_engine.spark.voting import Vote
    from txn_engine.spark.writing import FileRows

    Sent = Sequence[Future[list[RecordMetadata]]]
    Load = Callable[[Engine, Producer, Topic, str, Context], Sequence[RecordMetadata]]

_TOLD = 10
READ_OPTIONS = frozenset(
    {
        "format",
        "compression",
        "encoding",
        "delimiter",
        "quote",
        "header",
        "null_values",
        "skip_footer",
        "columns",
        "missing_columns",
        "unknown_columns",
        "date_format",
        "decimal",
        "thousands",
        "binary",
    }
)


class TxnProduceOperator(Killable, BaseOperator):
    """Loads records into a topic in one transaction: readers see all of them or none, and each run's once.

    `path`: a csv, jsonl or parquet file, a folder or a pattern, or several, read as `txn-engine produce` reads them,
    with `read_options` as `txn_engine.files.read_records` has them (delimiter, date_format, ...); an empty list, as an
    earlier task that found no file gives, is a run with nothing to load. Or
    `python_callable(**op_kwargs)`, which gives a pyarrow Table, RecordBatch, RecordBatchReader, an iterable of them, or
    None for nothing; like a task's function it may ask for entries of the context by their names. Columns are the
    topic's; `partition` puts all into one, else the topic's key says. If a template or an earlier task gives None for
    an argument, such as the path or the manifest, the task fails: it does not go on as if nobody had given it.

    Paths are code, as all arguments are. `only_permitted_files` is for paths that come from a DAG's params: each has to
    be a file below a folder of `TXN_ENGINE_INPUT_ROOTS`, also at the moment when it is opened.

    With a `dead_letter_topic` rows that cannot be used go there, in the same transaction: records and dead letters are
    all rows. Above `max_dead_letters` (a count, or a share as "1%") the task fails and loads nothing. How many there
    were is in its XCom `dead_letters` (none where an earlier try had committed the run). Of a callable these are rows
    with a value that does not fit its column, whose type may then be wider than the topic's; letters name the task, and
    the row by its number in all that it gave.

    With a `manifest` (a topic, `topics create NAME --manifest`) files whose content was loaded before, by whatever run,
    are passed over and named in the log, unless `again` is true; one that has changed since fails the task. That is so
    in a run that is cleared too: what is new is loaded, where without a manifest the log says that it is not. It also
    knows files longer than the log knows runs. A DAG that catches up, and a backfill, starts a run for each date: there
    a manifest is asked for unless the paths hold the run's date, or `again=True` says that every run is to load all of
    its files.

    `engine="spark"` has Spark read the files, `path` as `txn_engine.spark.load_files` takes it: places and patterns
    that Spark can list, each file a task's. `spark_settings` are Spark's own, stronger than the deployment's
    (`TXN_ENGINE_SPARK_CONF`); they are code, as all arguments are: ask `deployment.permitted_spark_settings` for those
    that come from a DAG's params. `checks` vote
    before the commit: where a critical one fails or cannot be made the task fails and nothing is visible. The report
    goes to `report_folder`, else below `$AIRFLOW_HOME/txn_engine_reports/checks~/`, for the worker's user alone. Rows
    that fail an expectation whose meta says `on_failure: dead_letter` go to the `dead_letter_topic`, and the others are
    loaded; with `engine="local"` all of `checks` have to say so. `checks` are a plain dict or the path of a suite, its
    name among `TXN_ENGINE_SUITES`, or a function: none of these imports Great Expectations when Airflow parses the DAG,
    which takes seconds for each file. Expectations as objects are taken as well.

    Exactly once. The transaction is of the id `<dag>/<task>[/<part>]` unless `transactional_id` says another, and of
    the run `<dag>/<task>[/<part>]@<logical date in UTC>` (the DAG run's id where it has no date). A try fences whatever
    earlier one is alive, ends what that left open, asks the log whether the run was committed, and loads only where it
    was not. So a retry, a cleared task and a second scheduler load nothing twice. `identity` stands for `<dag>/<task>`:
    give the old one to a task whose DAG or id was renamed, so that it knows what it has loaded.

    A part of a mapped task is known by what it is given: by those of topic, path, `op_kwargs`, `read_options`,
    partition, dead letter topic and manifest that the parts do not share. These have to be plain data. So a list that
    is longer, or in another order, when it is cleared loads no file twice, and parts that are given the same load once.
    A part that is given nothing of these is known by what its templates gave, and a part of a `python_callable`, which
    may ask for its map index, by that.

    A DAG run is a run of its own, also a manual one in the same data interval: what is loaded then by a path with
    `{{ ds }}` or `{{ data_interval_start }}` is loaded again. Where people trigger such a DAG by hand, use a manifest.

    The log remembers the last 100 runs of a transactional id, Airflow what it has noted of a task. A run that both may
    have forgotten fails with a line that says so: as a backfill of dates before the last 100 runs, or where many tasks
    share an id. `forgotten_runs="load"` loads those: for a backfill of what is known never to have been loaded. It may
    be a template: of a DAG's param, or, because a run that is cleared keeps its params, of an Airflow Variable:
    `"{{ var.value.get('forgotten_runs', 'refuse') }}"`.

    A topic that was deleted and made again is another topic: its runs have `@incarnation=<number>` behind their names.

    Where the task has committed another topic, path, `op_kwargs` or `read_options` in this run than are asked for now,
    as when a mapped list has another file at its index, the task fails: nothing is left out silently, and nothing is
    loaded beside it. So these may not hold what differs from try to try. The check needs the note that Airflow keeps of
    the task; without it (the DAG run was deleted, or `[state_store] clear_on_success` is set) nothing can be compared.

    Runs side by side would fence one another, and each try again: `max_active_tis_per_dag` is 1 unless told. Each part
    of a mapped task has an id of its own; there the DAG's `max_active_runs=1` does it, and `outlets` are to be given.

    The records are uploaded before the transaction begins, so reading them may take as long as it needs.
    `transaction_timeout_s`: how long the transaction, which only names what was uploaded, may be open before the sweep
    aborts it; 5 minutes unless given, and at most the store's limit.
    `markers="deferred"` leaves the markers to `txn_write_markers`. Returns, and sends as the event of the topic's
    asset, where the records went: `TopicUpdate`. A run that loads nothing sends none and commits nothing (its `run_id`
    is ""), so it may be cleared to load what came late; one that was committed before sends its event again, for the
    first try may have died before it could. Where the topic or the connection is a template, the event goes through
    `assets.RENDERED_ALIAS`.
    """

    template_fields: Sequence[str] = (
        "topic",
        "path",
        "op_kwargs",
        "read_options",
        "dead_letter_topic",
        "max_dead_letters",
        "manifest",
        "transactional_id",
        "forgotten_runs",
        "spark_settings",
        "conn_id",
    )
    template_fields_renderers = {"op_kwargs": "py", "read_options": "json", "spark_settings": "json"}  # noqa: RUF012 -- Airflow's own form
    ui_color = "#e4f3ea"

    def __init__(
        self,
        *,
        topic: str,
        path: str | Sequence[str] | None = None,
        python_callable: Callable[..., Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        read_options: Mapping[str, Any] | None = None,
        partition: int | None = None,
        dead_letter_topic: str | None = None,
        max_dead_letters: int | str | None = None,
        manifest: str | None = None,
        again: bool = False,
        only_permitted_files: bool = False,
        transactional_id: str | None = None,
        identity: str | None = None,
        transaction_timeout_s: int | None = None,
        markers: Literal["inline", "deferred"] = "inline",
        forgotten_runs: ForgottenRuns = "refuse",
        engine: Literal["local", "spark"] = "local",
        spark_settings: Mapping[str, str] | None = None,
        checks: Any = None,
        report_folder: str | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = with_outlets(
            kwargs.get("outlets"), topic, conn_id, is_deferred=markers == "deferred"
        )
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        if (path is None) == (python_callable is None):
            raise ValueError(f"task {self.task_id!r}: expected either path or python_callable")
        if unknown := sorted(set(read_options or {}) - READ_OPTIONS):
            raise ValueError(
                f"task {self.task_id!r}: read_options {unknown}; expected {sorted(READ_OPTIONS)}"
            )
        if transaction_timeout_s is not None and transaction_timeout_s < 1:
            raise ValueError(
                f"task {self.task_id!r}: transaction_timeout_s={transaction_timeout_s}; expected 1 or more"
            )
        if dead_letter_topic is None and max_dead_letters is not None:
            raise ValueError(f"task {self.task_id!r}: max_dead_letters without a dead_letter_topic")
        if manifest is not None and (path is None or engine == "spark"):
            raise ValueError(f"task {self.task_id!r}: manifest is for a path, and engine='local'")
        if again and path is None:
            raise ValueError(f"task {self.task_id!r}: again is for a path")
        if only_permitted_files and (path is None or engine == "spark"):
            raise ValueError(f"task {self.task_id!r}: only_permitted_files is for a path, and engine='local'")
        if engine == "spark" and (path is None or partition is not None):
            raise ValueError(f"task {self.task_id!r}: engine='spark' takes a path, and no partition")
        if engine != "spark" and report_folder is not None:
            raise ValueError(f"task {self.task_id!r}: report_folder is for engine='spark'")
        if engine != "spark" and checks is not None and dead_letter_topic is None:
            raise ValueError(
                f"task {self.task_id!r}: checks without a dead_letter_topic are for engine='spark'"
            )
        self.topic = topic
        self.path = path
        self._is_path_of_the_run = is_template_of_the_run(path)
        self.python_callable = python_callable
        self.op_kwargs = dict(op_kwargs or {})
        self.read_options = dict(read_options or {})
        self.partition = partition
        self.dead_letter_topic = dead_letter_topic
        self.max_dead_letters = max_dead_letters
        self.manifest = manifest
        self.again = again
        self.only_permitted_files = only_permitted_files
        self.transactional_id = transactional_id
        self.identity = checked_identity(identity)
        self.transaction_timeout_s = transaction_timeout_s
        self.markers = markers
        self.forgotten_runs = forgotten_runs
        self.engine = engine
        self.spark_settings = dict(spark_settings or {})
        self.checks = checks
        self.report_folder = report_folder
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:
        """Load what this run has not loaded yet."""
        take_rendered(
            self,
            topic=text,
            path=or_none(texts),
            dead_letter_topic=or_none(text),
            max_dead_letters=anything,
            manifest=or_none(text),
            transactional_id=or_none(checked_transactional_id),
            conn_id=text,
        )
        identity = identity_of(
            context,
            self._own(),
            name=self.identity,
            knows_its_index=self.python_callable is not None,
        )
        name = self.transactional_id or identity.transactional_id
        check_forgotten_runs(self.forgotten_runs)
        if self.manifest is None and not (self.again or self._is_path_of_the_run):
            check_files_are_of_the_run(context, self._paths(), takes_manifest=self.engine == "local")
        from txn_engine.producer import run_into

        with (
            ended_by_a_kill(self.task_id),
            open_engine(self.conn_id) as engine,
            fenced_means_retry(),
            ExitStack() as stack,
        ):
            topic = engine.logs.topics.look_up(self.topic)
            run_id = run_into(identity.run_id, topic)
            load = self._checked(engine, topic, name, run_id, context, stack)
            with engine.producer(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms_of(engine, self.transaction_timeout_s),
                markers=self.markers,
            ) as producer:
                producer.init_transactions()
                forgotten: ForgottenRuns = self.forgotten_runs if self.manifest is None else "load"
                committed_before = has_committed_before(
                    engine, producer, run_id, context, self._arguments(), forgotten=forgotten
                )
                if committed_before and not self._has_manifest_to_ask:
                    self._tell_changed_files(context)
                    batches: Sequence[RecordMetadata] = []
                else:
                    batches = load(engine, producer, topic, run_id, context)
                is_committed = producer.has_committed(run_id)
            return told_load(
                self,
                context,
                engine,
                batches,
                transactional_id=name,
                run_id=run_id if is_committed else "",
                committed_before=committed_before and not batches,
            )

    @property
    def _has_manifest_to_ask(self) -> bool:
        """Whether the manifest says what is loaded, also of a run that was committed before."""
        return self.manifest is not None and not self.again

    def _checked(
        self, engine: Engine, topic: Topic, name: str, run_id: str, context: Context, stack: ExitStack
    ) -> Load:
        """How to load, once every argument was looked at, and every file was opened: what is wrong with one is raised
        before anybody is fenced. The files of a run that was committed may have been moved away since.
        """
        from txn_engine.files import files_named, format_of
        from txn_engine.found_files import check_opens
        from txn_engine.loading.load import check_load, was_committed

        self._dead_letters(engine, run_id)
        is_local = self.engine == "local"
        row_checks = self._row_checks() if is_local else ()
        has_format = self.read_options.get("format") is not None
        files = [Path(path) for path in self._named() if has_format or format_of(Path(path).name) is not None]
        check_load(
            engine,
            topic,
            files,
            partition=self.partition,
            manifest=self.manifest,
            reading={**self.read_options, "row_checks": row_checks},
        )
        is_done = not self._has_manifest_to_ask and was_committed(engine, name, run_id, "load")
        if is_local:
            if not is_done:
                check_opens(files_named(self._named(), self.read_options.get("format")))
            return partial(self._load, row_checks=row_checks)
        letters, vote = self._vote(engine, run_id, context)
        rows = None if is_done else self._files_of_spark(engine, topic, vote, stack)
        return partial(self._load_by_spark, rows=rows, letters=letters, vote=vote)

    def _own(self) -> dict[str, Any]:
        """What tells a part of a mapped task from the others."""
        return {
            "topic": self.topic,
            "path": self.path,
            "op_kwargs": self.op_kwargs,
            "read_options": self.read_options,
            "partition": self.partition,
            "dead_letter_topic": self.dead_letter_topic,
            "manifest": self.manifest,
        }

    def _arguments(self) -> dict[str, str]:
        """What decides which records this run loads, as it was rendered."""
        open_to_all = {"topic": shown(self.topic), "path": shown(self.path)}
        for kind, topic in (("dead_letter_topic", self.dead_letter_topic), ("manifest", self.manifest)):
            if topic is not None:
                open_to_all[kind] = shown(topic)
        settings = {"op_kwargs": self.op_kwargs, "read_options": self.read_options}
        return open_to_all | {
            f"{kind}.{name}": hidden(value)
            for kind, given in settings.items()
            for name, value in given.items()
        }

    def _load(
        self,
        engine: Engine,
        producer: Producer,
        topic: Topic,
        run_id: str,
        context: Context,
        *,
        row_checks: Sequence[RowCheck],
    ) -> Sequence[RecordMetadata]:
        dead = self._dead_letters(engine, run_id)
        if self.python_callable is None:
            sent = self._load_files(engine, producer, topic, run_id, context, dead, row_checks)
        else:
            sent = self._load_called(engine, producer, topic, run_id, context, dead, row_checks)
        if dead is not None:
            self._tell_dead_letters(context, dead.count, dead.told())
        return answered(sent)

    def _dead_letters(self, engine: Engine, run_id: str) -> DeadLetters | None:
        from txn_engine.loading.load import dead_letters_for

        return dead_letters_for(
            engine,
            self.dead_letter_topic,
            self.max_dead_letters,
            topic=self.topic,
            run_id=run_id,
            is_dry=False,
        )

    def _row_checks(self) -> Sequence[RowCheck]:
        if self.checks is None:
            return ()
        from txn_engine.quality import row_checks

        return row_checks(named_checks(self.checks))

    def _load_called(
        self,
        engine: Engine,
        producer: Producer,
        topic: Topic,
        run_id: str,
        context: Context,
        dead: DeadLetters | None,
        row_checks: Sequence[RowCheck],
    ) -> Sent:
        from txn_engine.loading.tables import TableLoad

        function = cast("Callable[..., Any]", self.python_callable)
        uploads = producer.upload()
        source = f"{context['ti'].dag_id}/{place_of(context)}"
        load = None if dead is None else TableLoad(topic, uploads, dead, source, self.partition, row_checks)
        records = function(**determine_kwargs(function, (), {**context, **self.op_kwargs}))
        for part in parts_of(records, task=self.task_id):
            if load is None:
                uploads.produce(self.topic, part, partition=self.partition)
            else:
                load.take(part)
        if load is not None:
            load.check()
        uploads.wait()
        sent: dict[str, Future[list[RecordMetadata]]] = {}

        def send() -> None:
            sent.update(uploads.send())
            engine.logs.topics.check_current(topic)

        commit_run(producer, run_id, uploads, send)
        return [sent[self.topic]] if self.topic in sent else []

    def _load_files(
        self,
        engine: Engine,
        producer: Producer,
        topic: Topic,
        run_id: str,
        context: Context,
        dead: DeadLetters | None,
        row_checks: Sequence[RowCheck],
    ) -> Sent:
        from txn_engine.loading import Manifest
        from txn_engine.loading.load import FileLoad

        reading = {**self.read_options, "row_checks": row_checks}
        with ExitStack() as stack:
            kept = None
            if self.manifest is not None:
                kept = stack.enter_context(Manifest(engine, self.manifest, topic=topic))
            named = set(map(Path, self._named()))
            load = FileLoad(engine, topic, reading, self.partition, dead, kept, run_id, named=named)
            uploads = producer.upload()
            load.upload_to(uploads)
            if kept is None:
                files = self._found()
                note_files(context, files)
                for file in files:
                    load.take(file)
            else:
                for seen in self._new(kept):
                    load.take_seen(seen)
            load.check()
            commit_run(producer, run_id, uploads, lambda: load.send(producer))
        self._tell_passed_over("which have no rows", list(load.empty))
        return load.sent

    def _found(self) -> Sequence[Path]:
        """The files that are named."""
        from txn_engine.files import files_named

        passed_over: list[Path] = []
        files = files_named(self._named(), self.read_options.get("format"), passed_over=passed_over.append)
        self._tell_passed_over("for how their names begin or end", passed_over)
        return files

    def _new(self, kept: Manifest) -> Sequence[SeenFile]:
        """Those of the files that the manifest does not know."""
        new = kept.new(self._found(), again=self.again)
        self._tell_passed_over(f"which manifest {self.manifest!r} knows", kept.passed_over)
        return new

    def _tell_changed_files(self, context: Context) -> None:
        """Say of a run that was committed before how its files differ from those that it loaded."""
        from txn_engine.errors import TxnEngineError

        if self.path is None or self.engine != "local":
            return
        try:
            changed = changed_files(context, self._found())
        except TxnEngineError as error:
            changed = [str(error)]
        if changed:
            told = "; ".join(changed[:_TOLD])
            self.log.warning(
                "%d differences from what was loaded, nothing of which is loaded now: %s", len(changed), told
            )

    def _paths(self) -> Sequence[str]:
        return [self.path] if isinstance(self.path, str) else self.path or ()

    def _named(self) -> Sequence[str | Path]:
        """The paths, of which each was looked at where only permitted files are loaded."""
        if not self.only_permitted_files:
            return self._paths()
        return [permitted_input_file(path, param="path") for path in self._paths()]

    def _tell_passed_over(self, why: str, names: Sequence[object]) -> None:
        if names:
            told = ", ".join(map(str, names[:_TOLD]))
            self.log.info("%d passed over, %s: %s", len(names), why, told)

    def _tell_dead_letters(self, context: Context, count: int, reasons: str) -> None:
        context["ti"].xcom_push("dead_letters", count)
        self.log.info("%d dead letters to %s: %s", count, self.dead_letter_topic, reasons)

    def _vote(
        self, engine: Engine, run_id: str, context: Context
    ) -> tuple[DeadLettersTo | None, Vote | None]:
        """Where Spark's jobs put dead letters, and what votes on the rows."""
        from txn_engine.spark.dead_letters import dead_letters_to
        from txn_engine.spark.voting import vote_of

        folder = None if self.checks is None else report_folder_of(context, self.report_folder)
        letters = dead_letters_to(
            engine, self.dead_letter_topic, self.max_dead_letters, actor=self.task_id, run_id=run_id
        )
        if letters is not None:
            letters.check_none_of((self.topic,))
        checks = named_checks(self.checks)
        vote = vote_of(
            checks, folder, engine=engine, outputs=(self.topic,), actor=self.task_id, letters=letters
        )
        return letters, vote

    def _files_of_spark(self, engine: Engine, topic: Topic, vote: Vote | None, stack: ExitStack) -> FileRows:
        """The files, listed by a session that ends with the stack. What is wrong with one is told by its name, line and
        column alone.
        """
        from txn_engine.spark.loading import files_of

        settings = deployment_spark_conf() | self.spark_settings
        row_checks = () if vote is None else vote.row_checks_of(self.topic)
        spark = stack.enter_context(task_spark(engine.url, settings, app_name=self.task_id))
        stack.enter_context(kind_of_failure_alone(told=("InvalidRecordError", "InvalidRequestError")))
        return files_of(
            spark, engine, topic, self.path or (), {**self.read_options, "row_checks": row_checks}
        )

    def _load_by_spark(
        self,
        engine: Engine,
        producer: Producer,
        topic: Topic,
        run_id: str,
        context: Context,
        *,
        rows: FileRows | None,
        letters: DeadLettersTo | None,
        vote: Vote | None,
    ) -> Sequence[RecordMetadata]:
        from txn_engine.spark.writing import write_with

        with ExitStack() as stack:
            written = write_with(
                engine,
                producer,
                {self.topic: self._files_of_spark(engine, topic, vote, stack) if rows is None else rows},
                offsets=None,
                run_id=run_id,
                vote=vote,
                letters=letters,
            )[self.topic]
        if letters is not None:
            self._tell_dead_letters(context, written.dead_letters, written.told_reasons)
        if written.checks is not None:
            vote_told(written.checks)
        return written.batches
