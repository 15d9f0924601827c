"""What simulated ranks do over time: steps, metrics, output, checkpoints, gradients."""
