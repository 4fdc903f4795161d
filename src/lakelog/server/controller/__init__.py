"""The controller of the cluster, on this broker or on another one.

Start with `relays`, through which every broker reaches the controller. The decisions themselves are
the plans of `lakelog.metadata.controller`.
"""
