"""The files of a checkpoint: names, manifest, commit, removal; free of torch."""
