"""The group and transaction coordinators on this broker, and what connects them to its partitions.

Start with `local`, which builds the coordinators and loads their partitions. Their decisions are in
`lakelog.coordinator`, which reaches logs and metadata only through the classes of this package.
"""
