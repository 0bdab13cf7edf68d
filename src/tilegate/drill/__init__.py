"""Failures, rehearsed on the machine that must withstand them: `sandbox.drill_sandbox(level) -> DrillReport`.

What is imported here is imported in jobs as well, so this is nothing.
"""
