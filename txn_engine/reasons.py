"""The reason of an error: a stable code for one of the several faults that an error class covers.

An error's class and `code` say what the caller does next. Its `reason` says which fault it was. Programs and tests
compare reasons, because the words of a message may be improved at any time. A reason is never renamed and never used
for another fault. Each member is followed by a sentence that says what happened.

The sections below follow the package that raises most of a section's reasons.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Which fault an error reports."""

    # --- names and arguments of any call -------------------------------------------------------------------
    UNKNOWN_COLUMN = "unknown_column"
    """The topic, table or file does not have a column of this name."""
    UNPRINTABLE_NAME = "unprintable_name"
    """A new name has a character that nobody sees or that a terminal acts on, or a space at an end."""
    MISSING_PACKAGE = "missing_package"
    """An optional Python package that the call needs is not installed."""

    # --- files and loading -----------------------------------------------------------------------------------

    # --- databases: Postgres and SQLite ------------------------------------------------------------------------

    # --- schemas, tables and SQL -------------------------------------------------------------------------------

    # --- erasure -----------------------------------------------------------------------------------------------

    # --- log, engine, coordinator ------------------------------------------------------------------------------
    SLOT_SEALED = "slot_sealed"
    """The slot of a log entry that the call needs or wrote was sealed."""
    LOG_NOT_LOADED = "log_not_loaded"
    """The slot of the call's entry was sealed, and the log could not be loaded again to see whether it was written."""
    NO_SOUND_SNAPSHOT = "no_sound_snapshot"
    """Entries are sealed or gone, and no sound snapshot has the state after them."""
    FILE_BELOW_FLOOR = "file_below_floor"
    """The data file is older than the floor of its partition, so clean-up may have removed it."""
    FILE_NAMED_BEFORE = "file_named_before"
    """The log already has a batch with this data file."""
    OFFSETS_OUT_OF_ORDER = "offsets_out_of_order"
    """The offsets in a data file do not ascend, or are not those of its batch."""
    UNKNOWN_CONTROL = "unknown_control"
    """A log entry is of a control kind that this version does not know."""
    TYPE_NOT_KEPT = "type_not_kept"
    """Arrow cannot convert a column back from the type that Parquet stores it as."""
    UNSTORABLE_TYPE = "unstorable_type"
    """Parquet cannot store a column of this type."""
    TOPIC_DELETED = "topic_deleted"
    """The topic was deleted."""
    TOPIC_MADE_AGAIN = "topic_made_again"
    """The topic was deleted, and another topic of the same name was created."""
    HAS_COORDINATOR = "has_coordinator"
    """The transaction is not hanging: a coordinator knows it and will end it."""
    NO_COMMITTED_OFFSET = "no_committed_offset"
    """The group has no committed offset for the partition, and `auto_offset_reset` is `none`."""
    PARTITION_WITHOUT_TOPIC = "partition_without_topic"
    """The call names a partition but no topic."""
    NOT_UTF8 = "not_utf8"
    """A text of the caller is not valid UTF-8."""
    IN_A_CALLBACK = "in_a_callback"
    """A callback of `produce` made a call that waits for writes."""
    IN_A_READER = "in_a_reader"
    """The reader that `produce` reads from made a call that ends the transaction."""
    PRODUCER_CLOSED = "producer_closed"
    """The producer was closed before the records were written."""
    ENGINE_CLOSED = "engine_closed"
    """The engine was closed before the call."""
    MISSING_FIELD = "missing_field"
    """An object on the store lacks a field that the protocol needs."""
    TOO_WIDE = "too_wide"
    """The schema has so many columns that the objects that name them are larger than readers take."""
    BUFFER_FULL = "buffer_full"
    """The producer's buffer had no room for the records within `max.block.ms`."""
    DELIVERY_TIMEOUT = "delivery_timeout"
    """The records were not appended within `delivery.timeout.ms`."""
    BAD_TIMESTAMP = "bad_timestamp"
    """A record's timestamp is not a whole number of milliseconds from the epoch to the year 9999."""
    OBJECT_GONE = "object_gone"
    """An object that the log names does not exist on the store."""
    BAD_CONTROL_VALUE = "bad_control_value"
    """The value of a control row does not have the format of its kind."""
    NOT_IN_TRANSACTION = "not_in_transaction"
    """The partition is not part of the producer's open transaction."""

    # --- admin, settings, cuts, backup -------------------------------------------------------------------------
    CUT_NOT_FOUND = "cut_not_found"
    """The store has never had a cut of this number."""
    UNKNOWN_SETTING = "unknown_setting"
    """There is no setting of this name."""
    NO_MEANING_HERE = "no_meaning_here"
    """Kafka has a setting of this name, but it has no meaning for this store, topic or client."""
    BAD_SETTING = "bad_setting"
    """The value is not allowed for this setting."""
    FIXED_SETTING = "fixed_setting"
    """The setting was chosen when the store was set up and cannot change."""
    STORE_HAS_OTHER_SETTINGS = "store_has_other_settings"
    """The call opens an existing store with other settings than the store has."""
    SETTING_TWICE = "setting_twice"
    """The call gives the setting in the dict and as a keyword."""
    NO_SETTINGS_DICT = "no_settings_dict"
    """The settings are not a dict."""
    NO_KEY_COLUMN = "no_key_column"
    """A compacted topic needs a key column, but the topic does not have one."""
    NULLABLE_KEY = "nullable_key"
    """A compacted topic needs a key in every record, but the key column may be null."""
    TOPIC_NOT_IN_CUT = "topic_not_in_cut"
    """The cut does not have the topic, which was created later or left out."""
    CUT_OF_ANOTHER_STORE = "cut_of_another_store"
    """The cut was made in another store."""
    CLAIM_GIVEN_UP = "claim_given_up"
    """Making the cut took so long that clean-up gave its number up."""
    CUT_DELETED = "cut_deleted"
    """The cut of this number was deleted."""
    PARTIAL_CUT = "partial_cut"
    """The cut is a cut of some topics, but the call needs a cut of all topics."""
    CUT_TOO_OLD = "cut_too_old"
    """The log entries that say what lies above the cut are sealed already."""
    OTHER_INTERNAL_PARTITIONS = "other_internal_partitions"
    """The cut has another number of partitions of an internal topic than the store."""
    TOPIC_DELETED_SINCE_CUT = "topic_deleted_since_cut"
    """A topic of the cut was deleted after the cut, and its files are gone."""
    NO_BACKUPS = "no_backups"
    """The place does not hold backups."""
    BACKUP_NOT_FOUND = "backup_not_found"
    """The place does not hold a finished backup of this number."""
    PLACES_OVERLAP = "places_overlap"
    """The store and the place of its backups are the same folder, or one of them lies inside the other."""
    PLACE_HOLDS_A_STORE = "place_holds_a_store"
    """A store is where the backups were to go."""
    PLACE_OF_ANOTHER_STORE = "place_of_another_store"
    """The place holds the backups of another store."""
    PLACE_NOT_EMPTY = "place_not_empty"
    """A restore needs an empty place, but the place holds a store or parts of one."""
    OTHER_RESTORE_BEGUN = "other_restore_begun"
    """A restore of another backup was begun in this place."""
    RESTORE_UNFINISHED = "restore_unfinished"
    """The store cannot be opened because its restore has not finished."""
    WRITE_LOST = "write_lost"
    """The store reported an object as stored, but a listing does not show it in its size."""
    MANIFEST_DAMAGED = "manifest_damaged"
    """A backup's manifest is damaged, so the objects that this backup needs are unknown."""
    UNAWARE_OF_REMOVAL = "unaware_of_removal"
    """An old program made the backup, without knowing that other backups had been removed."""
    OTHER_STATE = "other_state"
    """The stored state of a partition is not the state that the backup's manifest names."""

    # --- maintenance -------------------------------------------------------------------------------------------

    # --- quality and verification ------------------------------------------------------------------------------

    # --- Spark -------------------------------------------------------------------------------------------------
    NO_CONNECTOR = "no_connector"
    """Spark has no connector for this kind of store."""
    NO_CONNECTOR_JARS = "no_connector_jars"
    """The running Spark session was started without the jars of the store's connector."""

    # --- Airflow -----------------------------------------------------------------------------------------------
    HOME_IN_USE = "home_in_use"
    """Another process of `make airflow` is using this home."""
    OWNED_BY_ANOTHER_USER = "owned_by_another_user"
    """A file of the home belongs to another user of the machine."""
    LINK_LEADS_OUT = "link_leads_out"
    """A symbolic link in the home leads to a place outside the home."""
    PORT_TAKEN = "port_taken"
    """Another process listens on the port that the caller named."""
    SERVICE_ENDED = "service_ended"
    """A service ended before it was ready, or ended too often."""
    FILES_TOO_LARGE = "files_too_large"
    """The files of the records are larger than a page may read."""
    ROW_GROUPS_TOO_LARGE = "row_groups_too_large"
    """The row groups of the records are larger, once decompressed, than a page may read."""

    # --- demo, bench, tools ------------------------------------------------------------------------------------
    STORE_IN_MEMORY = "store_in_memory"
    """The store is in this process's memory, but the call needs a store that other processes reach."""
    DUPLICATE_PAYMENT = "duplicate_payment"
    """Two payments of the demo's input have the same id."""
    UNKNOWN_PAYMENT_TYPE = "unknown_payment_type"
    """A payment of the demo's input is neither a credit nor a debit."""
    NEGATIVE_AMOUNT = "negative_amount"
    """A payment of the demo's input has an amount below 0."""
    TOO_FEW_DAYS = "too_few_days"
    """The demo's input covers fewer days than the demo has parts."""
    CHILD_FAILED = "child_failed"
    """A process that the demo or the bench started reported a failure."""
    CHILD_ENDED = "child_ended"
    """A process that the demo or the bench started ended before it had answered."""
