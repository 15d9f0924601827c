"""The training loop of a rank: one step after another, with what is measured and saved."""
