"""Parts for frameworks, each in a module of its own that imports the framework."""
