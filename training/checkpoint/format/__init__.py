"""The files of a checkpoint: names, manifest, commit, removal.

Free of torch; imports `spec`.
"""
