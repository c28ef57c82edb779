"""Options that several commands share. Each group of options is a dataclass."""
