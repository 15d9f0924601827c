"""Distribution of a model over ranks; imports `distributed` alone."""
