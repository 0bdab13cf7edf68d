"""Artifact x device -> evidence: plans, inputs, the worker that runs, the judge that compares."""
