#!/usr/bin/env bash
# kafka-go 0.4.51: a leader cannot read subscriptions that contain owned partitions (version 1 and newer: Java since
# 2.4, franz-go, librdkafka, sarama), though both offer `range` and it sends version 1 itself. It leaves the group, joins
# again after JoinGroupBackoff (5 s by default), and reads nothing meanwhile. It is well with another client as leader.
# Guessed before: it ignores what follows the user data. Prints what was seen; fails if that changes. The broker is
# franz-go's kfake, the other member franz-go.
# usage: kafka-go-leader-leaves-groups-of-newer-members.sh [VERSION OF kafka-go]; needs Go 1.26
set -euo pipefail
version=${1:-0.4.51}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	must(err)
	servers := cluster.ListenAddrs()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: "billing", Brokers: servers, Topics: []string{"orders"},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		HeartbeatInterval: 300 * time.Millisecond,
	})
	must(err)
	within, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	generation, err := group.Next(within)
	must(err)
	first := generation.MemberID
	fmt.Printf("kafka-go alone: %d partitions\n", len(generation.Assignments["orders"]))
	other, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"), kgo.Balancers(kgo.RangeBalancer()))
	must(err)
	go other.PollFetches(within)
	var failure error
	var failed time.Time
	for {
		generation, err = group.Next(within)
		if errors.Is(err, context.DeadlineExceeded) {
			panic(err)
		}
		if err == nil {
			break
		}
		if failure == nil {
			failure, failed = err, time.Now()
			fmt.Println("franz-go has joined, kafka-go leads:", strings.ReplaceAll(err.Error(), first, "MEMBER"))
		}
	}
	if failure == nil {
		fmt.Println("franz-go has joined, and kafka-go still leads: no error")
		os.Exit(1)
	}
	again := "the same member"
	if generation.MemberID != first {
		again = "another member"
	}
	fmt.Printf("kafka-go is in the group again as %s, after more than 4 s: %v, %d partitions\n",
		again, time.Since(failed) > 4*time.Second, len(generation.Assignments["orders"]))
}
GO
go mod init finding >/dev/null 2>&1
go get "github.com/segmentio/kafka-go@v$version" github.com/twmb/franz-go@v1.22.3 \
  github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c 2>/dev/null
go build -o groups .
echo "kafka-go $version"
./groups | tee seen
grep -q "^franz-go has joined, kafka-go leads: unable to read metadata for member" seen
grep -qx "kafka-go is in the group again as another member, after more than 4 s: true, 1 partitions" seen
