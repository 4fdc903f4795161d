"""A gate against tests that cannot fail: one place of the product is changed, and some test must.

`make mutants` draws places by a seed, changes one at a time in a fork of the process, and runs the
nearest tests. A mutant that no test notices is printed; mutants that no test can notice are
explained in `equivalents.toml`. The record of the last run is `docs/mutants.md`.
"""
