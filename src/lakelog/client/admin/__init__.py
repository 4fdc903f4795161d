"""Topics, groups and configurations."""
