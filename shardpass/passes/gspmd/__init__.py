"""The forms that GSPMD's side keeps shardings in, beside plain attributes.

Custom calls for constraints and for the borders of manual regions, tuples, and the strings in which
XLA carries Shardy's notation through HLO. :mod:`shardpass.passes.import_mhlo` and
:mod:`shardpass.passes.export_mhlo` are the two roads through here.
"""
