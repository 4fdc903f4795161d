"""Simulated producers: plain, idempotent and transactional."""
