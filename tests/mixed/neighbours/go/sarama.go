package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/IBM/sarama"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

type claims struct{ topic string }

func (claims) Setup(sarama.ConsumerGroupSession) error { return nil }

func (claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition for as long as this member has it.
func (c claims) ConsumeClaim(
	group sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	partition := []int32{claim.Partition()}
	tellPartitions("partitions_assigned", c.topic, partition)
	defer tellPartitions("partitions_revoked", c.topic, partition)
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			tellRecord(record.Partition, record.Offset, record.Value)
			group.MarkMessage(record, "")
			group.Commit()
			tellCommit(map[int32]int64{record.Partition: record.Offset + 1})
		case <-group.Context().Done():
			return nil
		}
	}
}

func saramaGroup(stop context.Context, chosen options) error {
	sarama.Logger = log.New(logWriter{}, "", 0)
	config := sarama.NewConfig()
	config.ClientID = chosen.ClientID
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	offered := []sarama.BalanceStrategy{}
	for _, name := range chosen.Assignors {
		offered = append(offered, strategies[name]())
	}
	config.Consumer.Group.Rebalance.GroupStrategies = offered
	group, err := sarama.NewConsumerGroup([]string{chosen.BootstrapServers}, chosen.GroupID, config)
	if err != nil {
		return err
	}
	for stop.Err() == nil {
		err := group.Consume(stop, []string{chosen.Topic}, claims{chosen.Topic})
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			break
		}
		if err != nil {
			complain("session: %v", err)
			time.Sleep(heartbeat)
		}
	}
	return group.Close()
}
