"""Content by digest: the workspace of a project, and the release as an OCI image layout."""
