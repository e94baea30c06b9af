"""The time that is written into files."""

import os
from datetime import UTC, datetime


def now() -> datetime:
    """The time, or the one that SOURCE_DATE_EPOCH says, with which the same source gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
