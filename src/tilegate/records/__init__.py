"""The nouns: frozen records with canonical bytes and digests. No clock, environment, file, process or torch."""
