"""`trainhall run`: a training on this host, without a coordinator."""
