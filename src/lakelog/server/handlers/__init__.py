"""One module per family of APIs, as in `lakelog.protocol`.

The function of an API has the API's name, and `APIS` declares how each API is served. Start with
`groups`, the shortest. `routes` imports every module of this package, so helpers that several
families need are in other packages. Handlers do not import each other.
"""
