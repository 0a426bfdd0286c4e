"""`python -m tests.docs.made_pages` writes the pages that are made from the code and the tests."""

from __future__ import annotations

import sys

from tests.docs import buckets_page, configs_page, operators_page, types_page

PAGES = (buckets_page, configs_page, operators_page, types_page)


def main() -> int:
    """Write each page."""
    for made in PAGES:
        made.PAGE.write_text(made.page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
