"""Part of an object: exactly the bytes asked for, or an error."""

from __future__ import annotations

from storage.errors import DamagedObjectError


def validate_range(start: int, length: int) -> None:
    """Raise ValueError for a range that begins before the object or has a negative length."""
    if start < 0 or length < 0:
        raise ValueError(f"a range starts at 0 or later and is not negative, not {start}, {length}")


def short_range(place: str, start: int, length: int, size: int | None) -> DamagedObjectError:
    """The error of an object that ends before the range asked for; `size` where it is known."""
    return DamagedObjectError(
        f"the object has {'fewer' if size is None else size} bytes, too few for bytes {start} to {start + length}",
        actor="store",
        place=place,
        expected=f"at least {start + length} bytes",
        action="restore the object from where it was written",
    )
