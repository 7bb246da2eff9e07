"""The address that processes meet at, before JAX is started."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes import address
from shardpass.runtime.processes.address import settled
from shardpass.runtime.processes.group import Group


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((request.param, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_is_taken(taken: int):
    """At whatever address of the machine."""
    group = Group.of(2, 0, f"localhost:{taken}")
    with pytest.raises(ShardingError, match=f"cannot listen at port {taken}") as caught:
        settled(group, print).__enter__()
    assert caught.value.slug == "bad-coordinator"


def test_a_port_that_is_taken_with_leave_to_share_it():
    """As gRPC does, which would listen at it as well."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        group = Group.of(2, 0, f"localhost:{listener.getsockname()[1]}")
        with pytest.raises(ShardingError, match="another program does"):
            settled(group, print).__enter__()


def test_a_port_of_another_machine_is_not_tried(taken: int):
    group = Group.of(2, 1, f"localhost:{taken}")
    with settled(group, print) as found:
        assert found.coordinator == group.coordinator


def test_a_port_of_this_machine_is_held():
    """Nobody else is given it, or may take it, until process 0 listens there."""
    with settled(Group.of(2, None, None), print) as group, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", group.port))
        with socket.socket() as grpc:
            grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            grpc.bind(("127.0.0.1", group.port))
            grpc.listen()
            with socket.create_connection(("127.0.0.1", group.port), 5) as caller:
                accepted, _ = grpc.accept()
                with accepted:
                    assert accepted.getpeername() == caller.getsockname()


def test_a_host_that_comes_up_late(monkeypatch: pytest.MonkeyPatch):
    attempts: list[str] = []

    def look(host: str, *_: object, **__: object) -> list[object]:
        attempts.append(host)
        if len(attempts) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(address, "_AGAIN", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", look)
    said: list[str] = []
    group = Group.of(2, 1, "run-0.run:1234", 30, 20)
    with settled(group, said.append) as found:
        assert 15 < found.start < 20
    assert attempts == ["run-0.run"] * 3
    assert said == [
        "run-0.run cannot be found: Name or service not known; try again for 20 s (--start-timeout)"
    ]
