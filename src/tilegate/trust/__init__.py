"""Which statements may be believed: signatures, and agreement of a statement with itself."""
