"""The loop of ranks that regroup in place: state transferred, steps rolled back; imports `loop`."""
