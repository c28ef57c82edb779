package main

import (
	"bufio"
	"encoding/hex"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode reads lines `assignment HEX`, `subscription HEX` and `ASSIGNOR HEX`, the last with the
// subscription of a group's only member, and tells how a client reads them: topics of a
// subscription, partitions by topic of an assignment, or the text of its error.
func decode(client string) error {
	read := map[string]func(string, []byte) (any, error){
		"franz-go": readByFranzGo,
		"sarama":   readBySarama,
	}[client]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		kind, encoded, _ := strings.Cut(lines.Text(), " ")
		data, err := hex.DecodeString(encoded)
		if err != nil {
			return err
		}
		result, err := read(kind, data)
		if err != nil {
			result = err.Error()
		}
		tell("decoded", line{"client": client, "read": result})
	}
	return lines.Err()
}

func readByFranzGo(kind string, data []byte) (any, error) {
	if kind == "subscription" {
		subscription := kmsg.NewConsumerMemberMetadata()
		err := subscription.ReadFrom(data)
		return subscription.Topics, err
	}
	assignment := kmsg.NewConsumerMemberAssignment()
	err := assignment.ReadFrom(data)
	partitions := map[string][]int32{}
	for _, topic := range assignment.Topics {
		partitions[topic.Topic] = topic.Partitions
	}
	return partitions, err
}

func readBySarama(kind string, data []byte) (any, error) {
	if kind == "assignment" {
		response := sarama.SyncGroupResponse{MemberAssignment: data}
		assignment, err := response.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		return assignment.Topics, nil
	}
	member := sarama.GroupMember{MemberId: "m", Metadata: data}
	response := sarama.JoinGroupResponse{Members: []sarama.GroupMember{member}}
	members, err := response.GetMembers()
	if err != nil {
		return nil, err
	}
	if kind == "subscription" {
		return members["m"].Topics, nil
	}
	plan, err := strategies[kind]().Plan(members, map[string][]int32{"orders": {0, 1}})
	return plan["m"], err
}
