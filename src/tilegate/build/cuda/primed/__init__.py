"""Imported by the keeper of a compile worker, before it forks: a module for each architecture, then `ready`.

Nothing is exported: what an import begins or waits for is what the forks find.
"""
