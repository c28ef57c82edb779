#!/usr/bin/env bash
# A replay on a standalone cluster whose workers have nothing but Python: an archive has the rest.
# PYTHON is that Python, MASTER the cluster, and app.py your handlers.
set -euo pipefail
python=${PYTHON:-python3.11}

"$python" -m venv environment-made
environment-made/bin/pip install 'asyncrevoke[journal]' uvloop venv-pack
environment-made/bin/venv-pack --prefix environment-made --output environment.tar.gz

# The driver runs in an environment of its own, with asyncrevoke[spark].
export PYSPARK_DRIVER_PYTHON=${PYSPARK_DRIVER_PYTHON:-$python}
export PYSPARK_PYTHON=./environment/bin/python
spark-submit --master "${MASTER:-spark://master:7077}" \
    --archives environment.tar.gz#environment \
    --py-files app.py \
    --conf spark.speculation=false \
    examples/spark_replay.py
