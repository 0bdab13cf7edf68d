"""Policy as data: what promotion asks for."""

from __future__ import annotations

import enum

from tilegate.records.canonical import Record
from tilegate.records.evaluation import Vouch
from tilegate.records.isolation import Level


class Density(enum.Enum):
    EXACT = "exact"
    """Only workloads that themselves passed."""
    INFERRED = "inferred"
    """Boxes in which every residue modulo the tile passed in every power-of-two bucket of trip counts."""


class Policy(Record, frozen=True):
    """Defaults are what most people should want; tilegate.toml may say otherwise."""

    density: Density = Density.INFERRED
    min_passes: int = 8
    """Below it a box is an anecdote, not evidence."""
    same_processor_model: bool = False
    """True: an artifact serves only the processor models that it was evaluated on."""
    isolation: tuple[Level, ...] = (Level.FULL, Level.GPU)
    """Levels accepted for build and evaluation."""
    vouch: tuple[Vouch, ...] = (Vouch.OBSERVED, Vouch.RECOMPUTED)
    """Who must stand for a pass. Failures count whoever tells them."""
