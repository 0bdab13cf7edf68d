"""Every situation that ends in an error, provoked for real: what is typed, the exit code, the text that is read.

`docs/make_errors.py` writes docs/errors.md from them, and tests/test_errors.py holds the two together. Each
situation has a folder of its own, and a processor that does not depend on the machine.
"""

CHAPTERS = {
    "command_line": "The command line",
    "project": "The project",
    "declaring": "Declaring an operator",
    "binding": "Binding a kernel",
    "building": "Building",
    "evaluating": "Evaluating and promoting",
    "explaining": "Explaining",
    "releasing": "Using a release",
    "serving": "Strict operators",
    "faults": "A GPU that fails",
    "storing": "The workspace",
    "machine": "The machine",
}
"""Modules of this package, with what each speaks of, in the order of the page."""
