package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

// readPartition reads one partition until its generation ends.
func readPartition(
	ended context.Context, generation *kafka.Generation, chosen options,
	assigned kafka.PartitionAssignment,
) {
	number := int32(assigned.ID)
	defer tellPartitions("partitions_revoked", chosen.Topic, []int32{number})
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     []string{chosen.BootstrapServers},
		Topic:       chosen.Topic,
		Partition:   assigned.ID,
		MinBytes:    1,
		MaxBytes:    1 << 20,
		MaxWait:     200 * time.Millisecond,
		ErrorLogger: kafka.LoggerFunc(complain),
	})
	defer reader.Close()
	if err := reader.SetOffset(assigned.Offset); err != nil {
		complain("offset of partition %d: %v", number, err)
		return
	}
	for {
		record, err := reader.ReadMessage(ended)
		if err != nil {
			if !errors.Is(err, kafka.ErrGenerationEnded) {
				complain("partition %d: %v", number, err)
			}
			return
		}
		// Unlike other clients it returns the markers that end transactions.
		if len(record.Key) != 4 || len(record.Value) != 6 {
			tellRecord(number, record.Offset, record.Value)
		}
		end := map[string]map[int]int64{chosen.Topic: {assigned.ID: record.Offset + 1}}
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if err = generation.CommitOffsets(end); err == nil {
				tellCommit(map[int32]int64{number: record.Offset + 1})
				break
			}
			complain("commit of partition %d: %v", number, err)
			if ended.Err() != nil || time.Now().After(deadline) {
				return
			}
		}
	}
}

func kafkaGo(stop context.Context, chosen options) error {
	known := map[string]kafka.GroupBalancer{
		"range":      kafka.RangeGroupBalancer{},
		"roundrobin": kafka.RoundRobinGroupBalancer{},
	}
	balancers := []kafka.GroupBalancer{}
	for _, name := range chosen.Assignors {
		balancers = append(balancers, known[name])
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                chosen.GroupID,
		Brokers:           []string{chosen.BootstrapServers},
		Dialer:            &kafka.Dialer{ClientID: chosen.ClientID, Timeout: patience},
		Topics:            []string{chosen.Topic},
		GroupBalancers:    balancers,
		HeartbeatInterval: heartbeat,
		SessionTimeout:    session,
		RebalanceTimeout:  time.Minute,
		JoinGroupBackoff:  time.Second,
		StartOffset:       kafka.FirstOffset,
		Logger:            kafka.LoggerFunc(complain),
		ErrorLogger:       kafka.LoggerFunc(complain),
	})
	if err != nil {
		return err
	}
	for {
		generation, err := group.Next(stop)
		if stop.Err() != nil {
			break
		}
		if err != nil {
			complain("generation: %v", err)
			continue
		}
		for _, assigned := range generation.Assignments[chosen.Topic] {
			tellPartitions("partitions_assigned", chosen.Topic, []int32{int32(assigned.ID)})
			generation.Start(func(ended context.Context) {
				readPartition(ended, generation, chosen, assigned)
			})
		}
	}
	return group.Close()
}
