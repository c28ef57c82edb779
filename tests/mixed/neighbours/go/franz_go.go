package main

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// uncommitted is what was printed and not committed yet.
type uncommitted struct {
	lock  sync.Mutex
	topic string
	ends  map[int32]int64
}

func (u *uncommitted) read(record *kgo.Record) {
	u.lock.Lock()
	defer u.lock.Unlock()
	tellRecord(record.Partition, record.Offset, record.Value)
	u.ends[record.Partition] = record.Offset + 1
}

func (u *uncommitted) flush(client *kgo.Client) error {
	u.lock.Lock()
	defer u.lock.Unlock()
	if len(u.ends) == 0 {
		return nil
	}
	offsets := map[int32]kgo.EpochOffset{}
	for partition, end := range u.ends {
		offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: end}
	}
	var failure error
	done := func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error,
	) {
		failure = err
		if err == nil {
			for _, topic := range response.Topics {
				for _, partition := range topic.Partitions {
					failure = errors.Join(failure, kerr.ErrorForCode(partition.ErrorCode))
				}
			}
		}
	}
	all := map[string]map[int32]kgo.EpochOffset{u.topic: offsets}
	client.CommitOffsetsSync(context.Background(), all, done)
	if failure == nil {
		tellCommit(u.ends)
		clear(u.ends)
	}
	return failure
}

func (u *uncommitted) flushForGood(client *kgo.Client) {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := u.flush(client)
		if err == nil {
			return
		}
		complain("commit before a release: %v", err)
		if time.Now().After(deadline) {
			return
		}
	}
}

func franzGo(stop context.Context, chosen options) error {
	known := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	balancers := []kgo.GroupBalancer{}
	for _, name := range chosen.Assignors {
		balancers = append(balancers, known[name])
	}
	pending := uncommitted{topic: chosen.Topic, ends: map[int32]int64{}}
	released := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
			if name == "partitions_revoked" {
				pending.flushForGood(client)
			}
			tellPartitions(name, chosen.Topic, partitions[chosen.Topic])
		}
	}
	membership := []kgo.Opt{
		kgo.Balancers(balancers...),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(heartbeat),
	}
	if len(balancers) == 0 { // by KIP-848, which it joins only with one of these two balancers
		membership = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	}
	client, err := kgo.NewClient(append(membership,
		kgo.SeedBrokers(chosen.BootstrapServers),
		kgo.ConsumerGroup(chosen.GroupID),
		kgo.ConsumeTopics(chosen.Topic),
		kgo.ClientID(chosen.ClientID),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(
			func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
				tellPartitions("partitions_assigned", chosen.Topic, partitions[chosen.Topic])
			}),
		kgo.OnPartitionsRevoked(released("partitions_revoked")),
		kgo.OnPartitionsLost(released("partitions_lost")),
		kgo.WithLogger(kgo.BasicLogger(logWriter{}, kgo.LogLevelInfo, nil)),
	)...)
	if err != nil {
		return err
	}
	for stop.Err() == nil {
		fetches := client.PollFetches(stop)
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				complain("fetch of partition %d: %v", partition, err)
			}
		})
		fetches.EachRecord(pending.read)
		if err := pending.flush(client); err != nil {
			complain("commit of %v: %v", maps.Clone(pending.ends), err)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

type logWriter struct{}

func (logWriter) Write(text []byte) (int, error) {
	complain("%s", text)
	return len(text), nil
}
