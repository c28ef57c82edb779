#!/usr/bin/env bash
# @platformatic/kafka 1.35.0 with default options: once the stream has returned 10 of 500 records, the group has
# committed offset 500. If the process ends then, 490 records are never processed; with autocommit off and
# message.commit(), it has committed 10. Guessed before: only what the stream returned is committed, as with Java.
# Prints what was seen; fails if that changes. The broker is franz-go's kfake.
# usage: platformatic-kafka-commits-unread-records.sh [VERSION OF @platformatic/kafka]; needs Go 1.26, Node 20.19 or newer
set -euo pipefail
version=${1:-1.35.0}
folder=$(mktemp -d)
trap 'kill "${broker:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		panic(err)
	}
	fmt.Println(cluster.ListenAddrs()[0])
	select {}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>/dev/null
go build -o kfake .
npm install --silent --no-package-lock --no-audit --no-fund "@platformatic/kafka@$version" >/dev/null 2>&1
cat >read.mjs <<'JS'
import { Consumer, Producer } from '@platformatic/kafka'

const [bootstrap, group] = process.argv.slice(2)
const manual = group === 'manual'
const common = { clientId: group, bootstrapBrokers: [bootstrap] }
if (!manual) {
  const value = number => ({ topic: 'orders', partition: 0, value: Buffer.from(String(number)) })
  await new Producer(common).send({ messages: Array.from({ length: 500 }, (_, number) => value(number)) })
}
const consumer = new Consumer({ ...common, groupId: group, ...(manual && { autocommit: false }) })
const stream = await consumer.consume({ topics: ['orders'], mode: 'committed', fallbackMode: 'earliest' })
let returned = 0
for await (const message of stream) {
  returned += 1
  if (manual) await message.commit()
  await new Promise(resolve => setTimeout(resolve, 50))
  if (returned === 10) break
}
const committed = await consumer.listCommittedOffsets({ topics: [{ topic: 'orders', partitions: [0] }] })
console.log(`${group}: ${returned} records returned, committed offset ${committed.get('orders')[0]}`)
process.exit(0)
JS
./kfake >address &
broker=$!
for ((waited = 0; waited < 100; waited++)); do
  [ ! -s address ] || break
  kill -0 "$broker" || { echo "kfake has ended" >&2; exit 1; }
  sleep 0.1
done
[ -s address ] || { echo "kfake gave no address within 10 s" >&2; exit 1; }
echo "@platformatic/kafka $version, node $(node --version)"
{ node read.mjs "$(cat address)" default; node read.mjs "$(cat address)" manual; } | tee seen
grep -qx "default: 10 records returned, committed offset 500" seen
grep -qx "manual: 10 records returned, committed offset 10" seen
