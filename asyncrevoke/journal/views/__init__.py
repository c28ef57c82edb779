"""Tables for operators, derived from the rows of a journal."""
