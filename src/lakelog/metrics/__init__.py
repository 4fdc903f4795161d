"""Counting what happens, cheaply enough for the path of every request.

Plain numbers and lists: nothing is labelled, summed up or formatted until somebody asks. What the
numbers are called is in `lakelog.server.monitoring`.
"""
