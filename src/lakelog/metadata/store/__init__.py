"""Where the metadata log is kept: one interface, several stores."""
