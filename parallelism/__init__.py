"""How a model is spread over ranks; imports `distributed` alone."""
