"""How a recorder observes an engine: one file per engine."""
