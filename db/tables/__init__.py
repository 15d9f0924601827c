"""Tables of single subjects, beside those of `models`; imports `db` alone."""
