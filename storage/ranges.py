"""How much of an object is read: exactly the bytes asked for, at most as many as its kind may have, or an error."""

from __future__ import annotations

from storage.errors import DamagedObjectError, OversizedObjectError


def validate_range(start: int, length: int) -> None:
    """Raise ValueError for a range that begins before the object or has a negative length."""
    if start < 0 or length < 0:
        raise ValueError(f"a range starts at 0 or later and is not negative, not {start}, {length}")


def check_size(place: str, size: int, max_bytes: int | None) -> None:
    """Raise OversizedObjectError for an object of more than `max_bytes` (None: any size will do)."""
    if max_bytes is not None and size > max_bytes:
        raise OversizedObjectError(
            f"{size} bytes",
            actor="store",
            place=place,
            expected=f"at most {max_bytes}, as no object of its kind has more",
            action="find out who put it there, and restore the object from a copy",
        )


def short_range(place: str, start: int, length: int, size: int | None) -> DamagedObjectError:
    """The error of an object that ends before the range asked for; `size` where it is known."""
    return DamagedObjectError(
        f"the object has {'fewer' if size is None else size} bytes, too few for bytes {start} to {start + length}",
        actor="store",
        place=place,
        expected=f"at least {start + length} bytes",
        action="restore the object from where it was written",
    )
