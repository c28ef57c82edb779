// One member of a consumer group: `neighbour CLIENT OPTIONS`, OPTIONS as JSON; or `neighbour CLIENT
// decode`, which tells how a client reads subscriptions and assignments.
//
// It prints what it does as Kafka's VerifiableConsumer does, one JSON object a line, commits what it
// has printed, and leaves the group upon SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	session   = 10 * time.Second
	heartbeat = 300 * time.Millisecond
	// A commit that a rebalance rejects is tried again for so long before a partition is released.
	patience = 10 * time.Second
)

type options struct {
	BootstrapServers string   `json:"bootstrap_servers"`
	GroupID          string   `json:"group_id"`
	Topic            string   `json:"topic"`
	ClientID         string   `json:"client_id"`
	Assignors        []string `json:"assignors"`
}

type line map[string]any

var output sync.Mutex

func tell(name string, fields line) {
	fields["name"] = name
	encoded, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	if _, err = os.Stdout.Write(append(encoded, '\n')); err != nil {
		panic(err)
	}
}

func tellPartitions(name, topic string, partitions []int32) {
	listed := []line{}
	for _, partition := range partitions {
		listed = append(listed, line{"topic": topic, "partition": partition})
	}
	if len(listed) > 0 {
		tell(name, line{"partitions": listed})
	}
}

func tellRecord(partition int32, offset int64, value []byte) {
	number, err := strconv.Atoi(string(value))
	if err != nil {
		panic(err)
	}
	tell("record_data", line{"partition": partition, "offset": offset, "value": strconv.Itoa(number)})
}

func tellCommit(offsets map[int32]int64) {
	listed := []line{}
	for partition, offset := range offsets {
		listed = append(listed, line{"partition": partition, "offset": offset})
	}
	tell("offsets_committed", line{"offsets": listed, "success": true})
}

func complain(format string, values ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05.000 ")+format+"\n", values...)
}

func main() {
	clients := map[string]func(context.Context, options) error{
		"franz-go": franzGo,
		"sarama":   saramaGroup,
		"kafka-go": kafkaGo,
	}
	if os.Args[2] == "decode" {
		if err := decode(os.Args[1]); err != nil {
			panic(err)
		}
		return
	}
	var chosen options
	if err := json.Unmarshal([]byte(os.Args[2]), &chosen); err != nil {
		panic(err)
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := clients[os.Args[1]](stop, chosen); err != nil {
		complain("%s ended: %v", os.Args[1], err)
		os.Exit(1)
	}
}
