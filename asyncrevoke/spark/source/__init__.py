"""The data source: ``spark.read.format("asyncrevoke")`` and ``readStream``."""
