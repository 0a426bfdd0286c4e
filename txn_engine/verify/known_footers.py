"""Footers that were judged before: objects written alike have footers alike, but for their checksum and write id.

A footer is known by all of its bytes but those digits, and by where it stands. What was found of one holds for the
other then: they are the same bytes where anything is decided by them. What depends on the pages is judged each time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from storage.parquet_footer import Footer
from storage.parquet_limits import ParquetLimits
from storage.plain_columns import PlainColumns, plain_columns
from txn_engine.verify.checksums import CHECKSUM_MARK, DIGITS, TAIL_BYTES, Whole
from txn_engine.verify.footer_form import FooterForms, Form, forms_like

_KEPT: Final = 64
_SCHEMAS_KEPT: Final = 8
_TAIL_BYTES_MAX: Final = 8 << 10
_WRITE_ID_MARK: Final = b"txn_engine.write_id"
_WRITE_ID: Final = re.compile(re.escape(_WRITE_ID_MARK) + rb"\x18\x20([0-9a-f]{32})")


class KnownFooter:
    """What one footer says, and how the columns of its objects can be cut out, once two of them were read."""

    __slots__ = ("_is_learned", "footer", "kind", "metadata", "plain", "schema", "version", "write_id")

    def __init__(
        self,
        footer: Footer,
        metadata: pq.FileMetaData,
        schema: pa.Schema,
        kind: str,
        write_id: str,
        version: str | None,
    ) -> None:
        self.footer = footer
        self.metadata = metadata
        self.schema = schema
        self.kind = kind
        self.write_id = write_id
        self.version = version
        self.plain: PlainColumns | None = None
        self._is_learned = False

    def learn(self, file: pq.ParquetFile, data: bytes, known: KnownFooters) -> None:
        """See whether the columns can be cut out of an object that was checked: only where Arrow reads the same."""
        if self._is_learned:
            return
        self._is_learned = True
        plain = plain_columns(
            self.footer, self.metadata, self.schema, data, known.paths, alone=known.columns is None
        )
        cut = None if plain is None else plain.cut(data)
        if plain is None or cut is None:
            return
        try:
            read = _as_arrow_reads(file, known.paths)
        except (pa.ArrowException, OSError, ValueError):
            return  # whoever reads it next is told
        if plain.values(cut) == read:
            self.plain = plain


def _as_arrow_reads(file: pq.ParquetFile, paths: Sequence[str]) -> list[tuple[object, ...]]:
    table = file.read(columns=list(paths), use_threads=False)
    columns = [table.column(path) for path in paths]
    return [
        tuple((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
        for column in columns
    ]


class FooterKey(NamedTuple):
    """What a footer is known by, and the write id that was left out of that; None: it has none of 32 digits."""

    known_by: tuple[int, int, int, bytes]
    write_id: str | None


class KnownFooters:
    """The last footers of one kind of object: of `columns` (None: all) those at `paths` are cut out, in this order."""

    def __init__(self, limits: ParquetLimits, columns: Collection[str] | None, paths: Sequence[str]) -> None:
        self.limits = limits
        self.columns = columns
        self.paths = paths
        self._known: dict[tuple[int, int, int, bytes], KnownFooter] = {}
        self._forms: tuple[FooterForms, ...] = ()
        self._of_form: dict[tuple[bytes, ...], KnownFooter] = {}
        self._schema: pa.Schema | None = None

    def key_of(self, whole: Whole) -> FooterKey | None:
        """What the footer of an object whose checksum is right is known by; None: it is too large to be kept."""
        tail, digits_at = whole.tail, whole.digits_at
        if len(tail) > _TAIL_BYTES_MAX:
            return None
        found = _WRITE_ID.search(tail)
        if found is None or found.end() > digits_at:
            rest = tail[:digits_at] + tail[digits_at + DIGITS :]
            return FooterKey((whole.footer_at, -1, digits_at, rest), None)
        begin, end = found.span(1)
        rest = tail[:begin] + tail[end:digits_at] + tail[digits_at + DIGITS :]
        return FooterKey((whole.footer_at, begin, digits_at, rest), found[1].decode())

    def get(self, key: FooterKey) -> KnownFooter | None:
        """What is known of it."""
        return self._known.get(key.known_by)

    def form_of(self, whole: Whole, key: FooterKey) -> Form | None:
        """What the footer has in common with others of its schema; None where it has no form."""
        _, write_id_at, digits_at, _ = key.known_by
        for forms in self._forms:
            if whole.tail.startswith(forms.schema):
                found = forms.of(whole.tail)
                if found is None or found[1] > min(digits_at, write_id_at if write_id_at >= 0 else digits_at):
                    return None
                form, at = found
                where = b"%d %d" % (write_id_at - at if write_id_at >= 0 else -1, digits_at - at)
                behind = key.known_by[-1][at:-TAIL_BYTES]
                return Form((*form.known_by, behind, where), form.places)
        return None

    def like(self, form: Form | None) -> KnownFooter | None:
        """The last footer of this form."""
        return None if form is None else self._of_form.get(form.known_by)

    def keep(self, key: FooterKey, known: KnownFooter, whole: Whole, form: Form | None) -> None:
        """Keep what was judged. Only where the digits can be nothing but the values of their names."""
        rest = key.known_by[-1]
        if rest.count(CHECKSUM_MARK) != 1 or rest.count(_WRITE_ID_MARK) > 1:
            return
        if key.write_id is not None and key.write_id != known.write_id:
            return
        if self._schema is not None and self._schema.equals(known.schema, check_metadata=True):
            known.schema = self._schema  # the same object: what was found right is not looked at again
        self._schema = known.schema
        if len(self._known) >= _KEPT:
            self._known = {}
        self._known[key.known_by] = known
        if self.columns is not None:
            self._keep_form(known, form or self._first_form(key, known, whole, self.columns))

    def _first_form(
        self, key: FooterKey, known: KnownFooter, whole: Whole, columns: Collection[str]
    ) -> Form | None:
        """The form of a footer whose schema may be new."""
        if any(whole.tail.startswith(forms.schema) for forms in self._forms):
            return None
        forms = forms_like(whole.tail[:-TAIL_BYTES], known.footer, columns)
        if forms is None:
            return None
        self._forms = (forms, *self._forms[: _SCHEMAS_KEPT - 1])
        return self.form_of(whole, key)

    def _keep_form(self, known: KnownFooter, form: Form | None) -> None:
        before = self.like(form)
        if form is None or (before is not None and before.plain is not None):
            return
        if len(self._of_form) >= _KEPT:
            self._of_form = {}
        self._of_form[form.known_by] = known
