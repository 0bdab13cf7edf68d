"""Laws: pure decisions over records, with no clock, environment, file, process or torch."""
