"""S3's error codes for refused credentials, whichever client reports them."""

from __future__ import annotations

from typing import Final

DENIED: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccountProblem",
     "TokenRefreshRequired", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "AllAccessDisabled"}
)  # fmt: skip


_READ: Final = (
    "s3:GetObject and s3:ListBucket"  # without the latter S3 refuses to say that an object is absent
)
_RIGHTS: Final = {
    "get": _READ,
    "get range": _READ,
    "head": _READ,
    "list": "s3:ListBucket",
    "list folders": "s3:ListBucket",
    "put": "s3:PutObject",
    "put-if-absent": "s3:PutObject",
    "delete": "s3:DeleteObject",
}
"""The rights that each operation of a store needs."""


def denied_action(code: str, operation: str = "") -> str:
    """What to do about a refusal of this operation."""
    right = _RIGHTS.get(operation)
    if code == "AccessDenied" and right is not None:
        may_lack_header = ", with the header for encryption that its policy may demand (docs/STORES.md)"
        return f"have {right} allowed{may_lack_header if right == 's3:PutObject' else ''}, or use another key"
    if code == "RequestTimeTooSkewed":
        return "set this machine's clock"
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed"):
        return "check access key, secret key and region"
    if code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return "get a fresh session token"
    return "check the credentials and what they may do in this bucket"
