"""Pipeline parallelism: stages of a model, and micro-batches that pass between ranks."""
