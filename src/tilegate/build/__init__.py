"""The build: source found and read, jobs that elaborate and compile, libraries inspected."""
