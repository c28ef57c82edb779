import kafkajs from 'kafkajs'
import { Assigned, HEARTBEAT_MS, SESSION_MS, complain, tellCommit, tellRecord } from './lines.mjs'

const { AssignerProtocol, Kafka, PartitionAssigners } = kafkajs

// KafkaJS has one assigner, which it calls RoundRobinAssigner. Other clients know what it does by
// another name.
function named (name) {
  if (name === 'RoundRobinAssigner') return PartitionAssigners.roundRobin
  return context => ({
    ...PartitionAssigners.roundRobin(context),
    name,
    protocol: ({ topics }) => ({
      name,
      metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics })
    })
  })
}

export async function run (options, stop) {
  const kafka = new Kafka({
    clientId: options.client_id,
    brokers: [options.bootstrap_servers],
    logCreator: () => ({ label, log }) => complain(label, JSON.stringify(log))
  })
  const consumer = kafka.consumer({
    groupId: options.group_id,
    partitionAssigners: options.assignors.map(named),
    sessionTimeout: SESSION_MS,
    heartbeatInterval: HEARTBEAT_MS,
    maxWaitTimeInMs: 200
  })
  const assigned = new Assigned(options.topic)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    assigned.replace(payload.memberAssignment[options.topic] ?? [])
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    complain('crash', payload.error.stack)
    if (!payload.restart) process.exit(1)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      tellRecord(partition, message.offset, message.value)
      const offset = String(BigInt(message.offset) + 1n)
      await consumer.commitOffsets([{ topic, partition, offset }])
      tellCommit(partition, offset)
    }
  })
  await stop
  await consumer.disconnect()
}
