"""What every command has in common: options, help that teaches, and errors that are one line."""

from __future__ import annotations

import difflib
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from txn_engine.cli.failures import Misuse, UsageFailed, errors_as_lines
from txn_engine.cli.output import Output
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from storage import Backend, ObjectStore
    from txn_engine.engine import Engine

Function = TypeVar("Function", bound=Callable[..., Any])
SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}


def check_partition_has_topic(topic: str | None, partition: int | None) -> None:
    """Raise a usage error for `--partition` without `--topic`."""
    if partition is not None and topic is None:
        raise Misuse("--partition needs --topic", reason=Reason.PARTITION_WITHOUT_TOPIC)


@dataclass(frozen=True, slots=True)
class Place:
    """Which store a command works on."""

    url: str | None
    endpoint: str | None

    def required(self) -> str:
        """The URL; a usage error where none was given."""
        if not self.url:
            raise click.UsageError("no store was named: give --url, or set TXN_ENGINE_URL")
        return self.url

    def to_environment(self) -> None:
        """Let the processes that this one starts find the endpoint."""
        from storage import backend_of

        backend = backend_of(self.url or "")
        if self.endpoint and backend is not None:
            os.environ[backend.endpoint_variable] = self.endpoint

    def endpoint_of(self, url: str) -> str | None:
        """What --endpoint said, for another place of the same kind."""
        from storage import backend_of

        return self.endpoint if backend_of(url) is backend_of(self.url or "") else None

    def open_store(self, *, set_up: bool = False) -> ObjectStore:
        """The bare store. Only with `set_up` a missing local folder is made; otherwise nothing is written."""
        from storage import open_store
        from txn_engine.log.objects import store_errors

        with store_errors():
            return open_store(self.required(), endpoint=self.endpoint, create=set_up)

    def has_ledger(self) -> bool:
        """Whether a ledger was begun here. Nothing is written."""
        from storage import BucketNotFoundError, open_store
        from txn_engine.log.objects import Objects, store_errors
        from txn_engine.log.store_config import read_store_config

        with store_errors():
            try:
                store = open_store(self.required(), endpoint=self.endpoint, create=False)
            except BucketNotFoundError:
                return False
        return read_store_config(Objects(store)) is not None

    def open(self, *, set_up: bool = False, configs: Mapping[str, str] | None = None) -> Engine:
        """The engine over a store that is there; with `set_up` one is begun, with `configs`, where there is none."""
        from txn_engine.engine import Engine
        from txn_engine.errors import StoreNotFoundError
        from txn_engine.log.objects import Objects
        from txn_engine.log.store_config import read_store_config

        store = self.open_store(set_up=set_up)
        if not set_up and read_store_config(Objects(store)) is None:
            raise StoreNotFoundError(
                "this place holds no store (there is no store.json)",
                actor="txn-engine",
                place=store.url,
                action="check the URL; if the store was lost, `txn-engine restore` makes it again from a backup; "
                "`topics create` sets up a new and empty one",
            )
        return Engine(store, configs=configs)


def local_folder(url: str) -> Path | None:
    """The folder of a local store, whether it is there or not; None for the URL of any other kind, and for one that is
    refused where it is opened.
    """
    from storage import StorageError, local_path

    try:
        path = local_path(url)
    except StorageError:
        return None
    return None if path is None else Path(path).absolute()


class Command(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, as they would be typed."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Group(click.Group):
    """A command of commands, that suggests what a mistyped name may have meant."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """The commands in the order in which one meets them."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help if there are no arguments. That is not an error."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which ones come near."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            known = (
                f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.list_commands(ctx))}"
            )
            ctx.fail(f"no such command {name!r}: {known}")
        return super().resolve_command(ctx, args)


Group.group_class = Group


class Root(Group):
    """The whole command line: here errors become lines and exit codes."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Note what is to be known even where the command line cannot be parsed."""
        flags = {"as_json": "--json" in args, "debug": "--debug" in args}
        if any(word == "--url" or word.startswith("--url=") for word in args[:1]):
            raise UsageFailed(
                "USAGE",
                "txn-engine: options go after the command: txn-engine topics list --url ...",
                as_json=flags["as_json"],
            )
        with errors_as_lines(**flags):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[__name__] = flags
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it raises is told plainly."""
        with errors_as_lines(**ctx.meta[__name__]):
            return super().invoke(ctx)


class FiniteRange(click.FloatRange):
    """A range of floats that leaves out what is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Fail for nan, and for what is too large for a float."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number", param, ctx)
        return found


class StoreOption(click.Option):
    """An option whose help says what each kind of store has for it, which is looked up when it is printed."""

    def __init__(self, *args: Any, told: Callable[[Backend], str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._told = told

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """As click's, with what stands for each kind behind the option's own words."""
        from storage import BACKENDS

        own = self.help or ""
        try:
            self.help = own.format(", ".join(map(self._told, BACKENDS)))
            return super().get_help_record(ctx)
        finally:
            self.help = own


def store_options(function: Function) -> Function:
    """Add --url and --endpoint; the command gets them as `place`."""

    @click.option(
        "--url",
        cls=StoreOption,
        told=lambda backend: f"{backend.example} (credentials: {backend.credentials})",
        envvar="TXN_ENGINE_URL",
        show_envvar=True,
        metavar="URL",
        help="The store: file:///folder, or {}.",
    )
    @click.option(
        "--endpoint",
        cls=StoreOption,
        told=lambda backend: f"{backend.endpoint_variable} for {backend.name}",
        metavar="URL",
        help="Where the store's server is, when it is not the provider's own: http://127.0.0.1:9000.  [env var: {}]",
    )
    @functools.wraps(function)
    def with_place(*args: Any, url: str | None, endpoint: str | None, **kwargs: Any) -> Any:
        from pyarrow import enable_signal_handlers

        enable_signal_handlers(False)  # while it reads csv it would take Ctrl-C for its own, and lose some
        return function(*args, place=Place(url, endpoint), **kwargs)

    return with_place  # type: ignore[return-value]


def output_options(function: Function) -> Function:
    """Add --json and --debug; the command gets an `out`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document; errors as JSON too.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def with_output(*args: Any, as_json: bool, debug: bool, **kwargs: Any) -> Any:
        del debug  # read where errors are told
        return function(*args, out=Output(as_json=as_json), **kwargs)

    return with_output  # type: ignore[return-value]


def common_options(function: Function) -> Function:
    """All options that every command has."""
    return store_options(output_options(function))


def execute_options(function: Function) -> Function:
    """Add --execute and --dry-run, checked; the command gets them as one `execute`.

    Every command that removes something for good, or that moves a group, has them: it shows what it would do, as
    Kafka's tools do, until --execute is there.
    """

    @click.option("--execute", is_flag=True, help="Do it. Without this, only show what would change.")
    @click.option("--dry-run", is_flag=True, help="Only show what would change (the default).")
    @functools.wraps(function)
    def checked(*args: Any, execute: bool, dry_run: bool, **kwargs: Any) -> Any:
        if execute and dry_run:
            raise click.UsageError("give one of --execute and --dry-run")
        return function(*args, execute=execute, **kwargs)

    return checked  # type: ignore[return-value]
