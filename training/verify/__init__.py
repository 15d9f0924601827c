"""Proof that strategies are interchangeable: traces of runs, compared step by step.

It imports `loop` and what that may.
"""
