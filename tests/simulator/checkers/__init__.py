"""Histories of observations of clients and brokers, and the laws that they must obey."""
