# Driver and executors of a replay on Kubernetes; see the page about Spark.
FROM apache/spark:4.2.0-python3
USER root
# asyncrevoke needs Python 3.11; where the image has an older one, install another and set PYSPARK_PYTHON.
RUN python3 -c 'import sys; assert sys.version_info >= (3, 11), sys.version' \
    && python3 -m pip install --no-cache-dir 'asyncrevoke[journal]' pandas uvloop
COPY app.py /opt/app/
COPY examples/spark_replay.py /opt/app/examples/
ENV PYTHONPATH=/opt/app
USER spark
