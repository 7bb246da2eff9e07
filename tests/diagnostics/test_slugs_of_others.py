"""Slugs of passes that live elsewhere."""

from __future__ import annotations

import pytest

from shardpass.diagnostics import Diagnostic, Severity


def test_a_slug_with_a_slash_needs_no_entry_in_the_catalogue() -> None:
    found = Diagnostic(Severity.REMARK, "acme/too-large", "3 values are too large")
    assert str(found) == "remark[acme/too-large]: 3 values are too large"


def test_a_misspelt_slug_of_ours_is_refused() -> None:
    with pytest.raises(LookupError, match="'indivisble' is not in the catalogue"):
        Diagnostic(Severity.ERROR, "indivisble", "6 into 4")
