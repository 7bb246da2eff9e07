"""The address that the processes of a run meet at, seen to before JAX is started.

JAX ends the process where it cannot listen there, with no word to a person, and tries on without a
word where a host has no address.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.group import HERE, Group

#: Seconds between two attempts to find a host's address.
_AGAIN: Final = 2.0
#: The least seconds that are left for joining once the host was found.
_LEAST: Final = 1.0


@contextlib.contextmanager
def settled(group: Group, say: Callable[[str], None]) -> Iterator[Group]:
    """See to it that processes can meet, and give the group with the address that they do it at.

    On one machine a port is chosen, and held inside: no other program is given it before process 0
    listens there. On a cluster the coordinator's host is looked for as long as processes are waited
    for, since that of a machine that is yet to come up may have no address; and process 0 finds
    out whether it can listen at the port.

    Raises:
      ShardingError: ``bad-coordinator``.
    """
    if group.is_here:
        with _held() as port:
            yield replace(group, coordinator=f"{HERE}:{port}")
        return
    if group.number == 0:
        _try_to_listen(group)
    yield _found(group, say)


@contextlib.contextmanager
def _held() -> Iterator[int]:
    with socket.socket() as holder:
        if hasattr(socket, "SO_REUSEPORT"):
            # gRPC asks for the same, and so may listen where this socket, which does not, is bound.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((HERE, 0))
        port = holder.getsockname()[1]
        if not hasattr(socket, "SO_REUSEPORT"):
            holder.close()
        yield port


def _try_to_listen(group: Group) -> None:
    """Listen as JAX will, at every address of this machine.

    Without gRPC's ``SO_REUSEPORT``: with it, two runs at one port would be mixed up.
    """
    attempts = ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0"))
    for family, address in attempts:
        try:
            with socket.socket(family) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                listener.bind((address, group.port))
                return
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                continue
            taken = error.errno == errno.EADDRINUSE
            raise ShardingError(
                "bad-coordinator",
                f"process 0 cannot listen at port {group.port} of this machine: "
                + ("another program does" if taken else error.strerror or str(error)),
                help="choose another port (--coordinator, the same in every command), unless "
                "another command was given --process-id 0 as well",
            ) from error


_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT)


def _found(group: Group, say: Callable[[str], None]) -> Group:
    """The group with the time that is left to join in, once its host has an address."""
    begun = time.monotonic()
    told = False
    while True:
        try:
            socket.getaddrinfo(group.host, group.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = f"{group.host} cannot be found: {_reason(error)}"
            left = group.start - (time.monotonic() - begun)
            if left <= _AGAIN:
                raise ShardingError(
                    "bad-coordinator",
                    f"{why}, for {group.start:g} s",
                    help="is it spelt right (--coordinator), and known on this machine? a machine "
                    "that takes longer to come up needs --start-timeout",
                ) from error
        else:
            return replace(group, start=max(_LEAST, group.start - (time.monotonic() - begun)))
        if not told:
            say(f"{why}; try again for {left:.0f} s (--start-timeout)")
            told = True
        time.sleep(_AGAIN)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
