"""What it takes to change the mesh of a module: every place where an axis is named.

:mod:`respell <shardpass.passes.meshes.respell>` finds the places and writes them back;
``sp-merge-meshes``, ``sp-name-axes`` and ``sp-retarget`` each say how an axis becomes another.
"""
