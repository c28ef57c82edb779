"""Changes groups without members: sets and deletes their offsets, and deletes them."""
