"""Which processes a user may ask for."""

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.group import Group


def test_all_processes_on_this_machine():
    group = Group.of(4, None, None)
    host, _, port = group.coordinator.partition(":")
    assert (group.is_here, group.numbers_here, group.timeout) == (True, (0, 1, 2, 3), 30.0)
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65536
    assert (group.share(8), group.share(4)) == (2, 1)


@pytest.mark.parametrize("address", ["node-0:1234", "[::1]:1234"])
def test_one_process_of_a_cluster(address: str):
    group = Group.of(4, 2, address, 60)
    assert (group.is_here, group.numbers_here, group.timeout) == (False, (2,), 60)
    assert group.coordinator == address
    assert group.port == 1234
    assert group.host == ("::1" if "::1" in address else "node-0")
    assert group.start == 300.0


@pytest.mark.parametrize(
    ("count", "number", "coordinator", "timeout", "told"),
    [
        (2, 0, None, 30, "needs its number and the address of process 0"),
        (2, None, "node-0:1234", 30, "needs its number and the address of process 0"),
        (2, 2, "node-0:1234", 30, "process 2 of 2"),
        (2, -1, "node-0:1234", 30, "process -1 of 2"),
        (0, None, None, 30, "0 processes"),
        (2, 0, "node-0", 30, '"node-0" is no address'),
        (2, 0, ":1234", 30, '":1234" is no address'),
        (2, 0, "node-0:70000", 30, '"node-0:70000" is no address'),
        (2, 0, "node-0:port", 30, '"node-0:port" is no address'),
        (2, None, None, 0.5, "a time-out of 0.5 s"),
        (2, None, None, float("nan"), "a time-out of nan s"),
        (2, None, None, float("inf"), "a time-out of inf s"),
    ],
)
def test_what_makes_no_sense(
    count: int, number: int | None, coordinator: str | None, timeout: float, told: str
):
    with pytest.raises(ShardingError) as caught:
        Group.of(count, number, coordinator, timeout)
    assert caught.value.slug == "usage"
    assert told in str(caught.value)


@pytest.mark.parametrize("devices", [1, 6, 9])
def test_devices_that_cannot_be_shared_out(devices: int):
    with pytest.raises(ShardingError, match="cannot be shared out evenly among 4 processes"):
        Group.of(4, None, None).share(devices)


def test_a_time_to_start_in_that_makes_no_sense():
    with pytest.raises(ShardingError, match=r"a time-out of 0\.5 s"):
        Group.of(2, 0, "node-0:1234", 30, 0.5)
