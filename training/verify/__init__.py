"""Proof that strategies are interchangeable: traces compared by step; imports `loop`."""
