"""Proof that strategies are interchangeable: traces of runs, compared step by step."""
