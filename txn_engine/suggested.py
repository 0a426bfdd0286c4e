"""Commands that errors, alerts and pages suggest, safe to paste: ids and names are anybody's."""

from __future__ import annotations

import shlex

from txn_engine.names import is_seen


def command(line: str, *names: str, **options: object) -> str:
    """`txn-engine <line> <name> ... --<option> <value> ...`, each value and name one word to a shell, whatever it is.

    `line` is ours, and stands as it is. What is not printable is written in escapes, so the command is one line.
    """
    given = [f"--{option.replace('_', '-')} {quoted(str(value))}" for option, value in options.items()]
    named = [quoted(name) for name in names]
    if any(name.startswith("-") for name in names):
        return " ".join(["txn-engine", line, *given, "--", *named])
    return " ".join(["txn-engine", line, *named, *given])


def quoted(word: str) -> str:
    """The word as a shell reads it back; an error's text keeps it, though that is brought to single spaces."""
    if is_seen(word) and "  " not in word:
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if is_seen(char) and char != " ":
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
