"""What stands around Shardy's partitioner: refusals of what it would not survive, and repairs.

Shardy's passes behind propagation trust their input. Before each of them a look here says, with its
place, what it would abort on or get wrong; around them, CHLO's ops are hidden and shown again, and
reductions that were planned twice are dropped. :mod:`shardpass.passes.partition` puts it in order.
"""
