"""The files of a checkpoint: names, manifest, commit, removal; imports `spec`, no torch."""
