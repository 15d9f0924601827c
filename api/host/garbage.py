"""Searches for garbage, which a coordinator needs seldom: it makes many objects and few cycles."""

import gc

GC_THRESHOLD = 100_000
"""So many new containers cause a search for garbage; 700 do with Python's own setting."""


def collect_rarely() -> None:
    """Search for garbage less often, and never again among the objects there are.

    Called before the imports of a start, whose objects stay, it saves a tenth of their time; and
    after the start: a large read makes 100,000 objects without a cycle, and took half of its time
    for searches.
    """
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
