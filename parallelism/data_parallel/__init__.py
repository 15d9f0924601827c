"""Data parallelism: replicas or shards of the model, and how their gradients are combined."""
