"""The page of an AsyncAPI document."""
