"""Each implemented version of each request, as a pair of functions to and from kio's entities."""
