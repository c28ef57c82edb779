#!/usr/bin/env bash
# kafka-go 0.4.51: a Reader returns the markers that end transactions as messages, with a key of 4 and a value of 6
# bytes, and with IsolationLevel ReadCommitted also the records of an aborted transaction. franz-go, sarama, KafkaJS,
# librdkafka and kafka-python return no markers. Guessed before: it leaves both out. Prints what was seen; fails if that
# changes. The broker is franz-go's kfake, or that of BOOTSTRAP, with an empty topic `markers` of one partition (seen
# with Apache Kafka 4.4.0, too).
# usage: kafka-go-returns-markers-and-aborted-records.sh [VERSION OF kafka-go]; needs Go 1.26
set -euo pipefail
version=${1:-0.4.51}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "markers"

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	servers := []string{os.Getenv("BOOTSTRAP")}
	if servers[0] == "" {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
		must(err)
		servers = cluster.ListenAddrs()
	}
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	producer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.TransactionalID("writer"), kgo.DefaultProduceTopic(topic))
	must(err)
	for number, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(producer.BeginTransaction())
		must(producer.ProduceSync(within, kgo.StringRecord(fmt.Sprint("record ", number))).FirstErr())
		must(producer.EndTransaction(within, end))
	}
	for name, level := range map[string]kafka.IsolationLevel{
		"ReadCommitted": kafka.ReadCommitted, "ReadUncommitted": kafka.ReadUncommitted,
	} {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: servers, Topic: topic, IsolationLevel: level, MaxWait: 100 * time.Millisecond,
		})
		for {
			idle, stop := context.WithTimeout(within, 5*time.Second)
			message, err := reader.ReadMessage(idle)
			stop()
			if err != nil {
				break
			}
			fmt.Printf("%s: offset %d, key %q, value %q\n", name, message.Offset, message.Key, message.Value)
		}
		must(reader.Close())
	}
}
GO
go mod init finding >/dev/null 2>&1
go get "github.com/segmentio/kafka-go@v$version" github.com/twmb/franz-go@v1.22.3 \
  github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>/dev/null
go build -o markers .
echo "kafka-go $version"
./markers | sort | tee seen
grep -qxF 'ReadCommitted: offset 1, key "\x00\x00\x00\x01", value "\x00\x00\x00\x00\x00\x00"' seen
grep -qxF 'ReadCommitted: offset 2, key "", value "record 1"' seen
test "$(wc -l <seen)" = 12
