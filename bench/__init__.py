"""Benchmarks: datasync beside its peers, every tool in turn against one server, as ratios of one run.

Results and how to repeat them are in docs/performance.md.
"""
