"""The process of a rank: the warm parent, its place in the group, its device."""
