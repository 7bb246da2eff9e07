"""One run on the devices of several processes.

XLA runs one program on the devices of many processes, each of which compiles it, places its own
blocks of the arguments and gets its own blocks of the results; ``jax.distributed`` makes them known
to each other. What is added here is what a person at a terminal needs beside that: results put
together, and a message where a process is lost.

**Together.** The processes *meet* before they compile and before they run: the clock of a
collective must not run for a process that is still compiling, or that has the unsharded program to
run first. As they join, they hold what they were started for against each other, and as they meet
before they compile, what they are about to compile: XLA would wait for ever for a process with
another program, or mix the two up. Results are then *exchanged* block by block, so that every
process can put them together; process 0 compares and writes.

**Lost.** JAX has no exception for the process whose peer is gone: its client ends the process by an
abort, a while later. So each process here is a *worker*, a child that is watched from outside, and
the *verdict* over what was seen of all of them tells the lost one from those that it took along:

========================= =======================================================================
a worker is killed, dies  seen at once: the others are ended, whatever they wait for
one raises an error       the same
one is stopped            seen once it has been for the time-out (``--process-timeout``)
one hangs                 the others' collectives give up after once or twice the time-out; what
                          has not given up by then is what they waited for
one computes for ever     the others compute nothing meanwhile: seen after the time-out where all
                          are on this machine, else as gloo gives up
one on another machine    JAX's client gives up after the time-out, and says which process it misses
========================= =======================================================================

The time-out is that of JAX's heartbeats, of its barrier at the end, and of a collective on CPUs
(gloo), which are 100 s, 300 s and half an hour if nobody says anything. Gloo alone has another one,
which nobody can set: 30 s for a process to come to the first collective of a set of devices.

On one machine all workers are started here. On a cluster each machine runs the same command with a
number of its own, and watches its one worker.

============== ==================================================================
``group``      which processes take part, and how long one may be silent
``job``        what they are to do
``address``    where they meet: a port that is free, a host that is known
``starting``   what is said while they wait for each other to start
``agreement``  that all of them were started for the same
``joining``    the way into the group, and out of it
``work``       doing a job, in a worker
``meeting``    points that all processes pass together
``phases``     what it means that a process computes nothing
``exchange``   what each process has, in all of them
``worker``     a worker as its supervisor holds it
``supervisor`` starting them, watching them, ending them
``verdict``    which process is lost, from what was seen of each
``running``    a module in processes that are started for it
============== ==================================================================
"""
