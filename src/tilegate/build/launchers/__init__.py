"""The launchers: C that stands between a call and an artifact, one for each backend, behind one guard."""
