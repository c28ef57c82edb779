"""The audit: compares what a journal says about a topic with the topic."""
