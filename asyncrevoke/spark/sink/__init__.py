"""Writes DataFrames to topics: ``df.write.format("asyncrevoke")`` and ``writeStream``."""
