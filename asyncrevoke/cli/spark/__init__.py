"""Commands that run on Apache Spark, or take over from it."""
