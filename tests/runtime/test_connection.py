"""Messages between two processes, here between two threads."""

from __future__ import annotations

import os
import pickle
import struct
import threading

import pytest

from shardpass.runtime.connection import connected


def test_a_message_of_any_size_arrives_whole():
    here, there = connected()
    text = "x" * 300_000
    with here, there:
        sender = threading.Thread(target=there.send, args=(("result", text),))
        sender.start()
        assert here.receive() == ("result", text)
        sender.join()


def test_messages_that_arrive_together_are_told_apart():
    here, there = connected()
    with here, there:
        there.send(("progress", "a"))
        there.send(("result", 2))
        assert [here.receive(), here.receive()] == [("progress", "a"), ("result", 2)]


def test_an_end_in_the_middle_of_a_message_is_no_message():
    here, there = connected()
    with here:
        with there:
            os.write(there.ends[1], b"\x09\0\0\0\0\0\0\0half")
        assert here.receive() is None


def test_what_interrupts_the_waiting_costs_no_message(monkeypatch: pytest.MonkeyPatch):
    """As a signal's handler does it, between the two halves of a message."""
    here, there = connected()
    with here, there:
        there.send(("result", "whole"))
        data = os.read(here.ends[0], 1 << 16)
        os.write(there.ends[1], data[:11])
        read = os.read
        pieces = iter([lambda: read(here.ends[0], 1 << 16), _interrupt])
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", lambda *_: next(pieces)())
            with pytest.raises(KeyboardInterrupt):
                here.receive()
        os.write(there.ends[1], data[11:])
        assert here.receive() == ("result", "whole")


def test_telling_ends_where_nobody_listens_any_more():
    here, there = connected()
    with there:
        with here:
            there.send(("result", 1))
            here.acknowledge()
        os.read(there.ends[0], 1)
        with pytest.raises(BrokenPipeError):
            there.tell("nobody hears it")


def test_nothing_is_acknowledged_to_one_who_has_ended():
    here, there = connected()
    with here:
        there.close()
        here.acknowledge()


def _interrupt() -> bytes:
    raise KeyboardInterrupt


def test_some_of_what_arrived_is_not_waited_for():
    """Half a message is kept, whoever stopped in the middle of it, and whole ones are given."""
    here, there = connected()
    there.send(("progress", "one"))
    there.send(("progress", "two"))
    whole = pickle.dumps(("result", list(range(9))))
    start = struct.pack("<Q", len(whole)) + whole[:5]
    os.write(there.ends[1], start)
    assert here.receive_some() == ([("progress", "one"), ("progress", "two")], True)
    os.write(there.ends[1], whole[5:])
    assert here.receive_some() == ([("result", list(range(9)))], True)
    there.close()
    assert here.receive_some() == ([], False)
    here.close()
