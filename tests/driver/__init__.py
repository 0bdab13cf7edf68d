"""A stand-in for the CUDA driver, which records and verifies every call, and what is needed to call it."""
