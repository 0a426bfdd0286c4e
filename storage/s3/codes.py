"""S3's error codes for refused credentials, whichever client reports them."""

from __future__ import annotations

from typing import Final

DENIED: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccountProblem",
     "TokenRefreshRequired", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "AllAccessDisabled"}
)  # fmt: skip


def denied_action(code: str) -> str:
    """What to do about a refusal."""
    if code == "RequestTimeTooSkewed":
        return "set this machine's clock"
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed"):
        return "check access key, secret key and region"
    if code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return "get a fresh session token"
    return "check the credentials and what they may do in this bucket"
