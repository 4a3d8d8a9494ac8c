"""What a test does where the machine lacks what it needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot_be_had(why: str) -> NoReturn:
    """Skips with the reason; in CI, which installs what its machine lacks, it is a failure."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
