"""Reports for people: tables on a terminal."""
