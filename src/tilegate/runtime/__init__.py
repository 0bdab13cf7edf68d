"""The serving side: operators, references, what is loaded, and the call site that decides."""
