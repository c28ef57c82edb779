"""Lists dead letters, replays them to their original topics, and calls their handlers again."""
