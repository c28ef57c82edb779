"""Each version of each request that we speak, as a pair of functions to and from kio's entities."""
