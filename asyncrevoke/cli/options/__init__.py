"""Options that several commands share, each group as one dataclass."""
