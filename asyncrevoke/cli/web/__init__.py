"""Commands that show pages."""
