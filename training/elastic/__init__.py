"""The loop of ranks that regroup in place: groups left, state transferred, steps rolled back."""
