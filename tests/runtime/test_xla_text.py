"""Stack traces of XLA, as its wheels write them: without symbols."""

from __future__ import annotations

import pytest

from shardpass.runtime.xla_text import without_traces

_STACK = "*** Begin stack trace ***\n\t\n\t\n\ttsl::CurrentStackTrace()\n*** End stack trace ***\n"
_PLACES = "=== Source Location Trace: === \nexternal/xla+/a.cc:81\nexternal/xla+/b.cc:5\n"


@pytest.mark.parametrize(
    ("told", "left"),
    [
        (f"INTERNAL: it failed\n{_STACK}", "INTERNAL: it failed"),
        (f"INTERNAL: it failed\n{_PLACES}\n{_STACK}\n{_PLACES}\n{_STACK}", "INTERNAL: it failed"),
        (f"{_STACK}\n{_STACK}", ""),
        (f"one\n\t{_STACK}two\n{_PLACES}three", "one\ntwo\nthree"),
        ("cut short\n*** Begin stack trace ***\n\t\n\t", "cut short"),
        ("external/of the user\n\nstays\n", "external/of the user\n\nstays\n"),
    ],
)
def test_what_is_left(told: str, left: str):
    assert without_traces(told) == left
