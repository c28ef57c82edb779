"""Other packages, imported without what they bring along and this library does not use."""
