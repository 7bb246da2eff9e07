"""How Shardy's passes are called: what is looked at in front of them, and behind them.

Propagation itself is C++ and Shardy's own. Here is what it wants of a module (one entry, rules for
CHLO's ops), how its pipelines are taken apart so that options reach the passes inside, and what is
said of it afterwards.
"""
