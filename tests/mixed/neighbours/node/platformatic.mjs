import { Consumer } from '@platformatic/kafka'
import { Assigned, HEARTBEAT_MS, SESSION_MS, complain, tellCommit, tellRecord } from './lines.mjs'

export async function run (options, stop) {
  const consumer = new Consumer({
    clientId: options.client_id,
    groupId: options.group_id,
    bootstrapBrokers: [options.bootstrap_servers],
    rebalanceTimeout: 60_000,
    ...(options.assignors.length
      ? {
          protocols: options.assignors.map(name => ({ name, version: 1 })),
          sessionTimeout: SESSION_MS,
          heartbeatInterval: HEARTBEAT_MS
        }
      : { groupProtocol: 'consumer' }),
    maxWaitTime: 200,
    autocommit: false
  })
  const assigned = new Assigned(options.topic)
  // A rebalance does not wait for the stream, which goes on with what was fetched before it, and
  // begins again at the committed offset: what it returns may be of a partition that has gone, or
  // come a second time. Of a partition that is kept nothing may be left out, as its position
  // may already be behind it.
  const kept = new Map()
  let joined = Promise.resolve()
  let tellJoined = () => {}
  consumer.on('consumer:group:rebalance', () => {
    tellJoined()
    joined = new Promise(resolve => { tellJoined = resolve })
  })
  const follow = (assignments, generationId) => {
    const of = assignments?.find(assignment => assignment.topic === options.topic)
    const partitions = of?.partitions ?? []
    for (const partition of kept.keys()) if (!partitions.includes(partition)) kept.delete(partition)
    for (const partition of partitions) {
      if (!kept.has(partition)) kept.set(partition, { since: generationId, next: 0n })
    }
    assigned.replace(partitions)
    tellJoined()
  }
  if (options.assignors.length) {
    consumer.on('consumer:group:join', payload => follow(payload.assignments, payload.generationId))
  } else {
    // By KIP-848 it tells nobody of a new assignment: it makes a new list.
    let followed = null
    setInterval(() => {
      if (consumer.assignments !== followed) follow(followed = consumer.assignments, -1)
    }, 5).unref()
  }
  consumer.on('consumer:heartbeat:error', ({ error }) => complain('heartbeat', error.stack))
  const stream = await consumer.consume({
    topics: [options.topic], mode: 'committed', fallbackMode: 'earliest'
  })
  let stopped = false
  stop.then(() => {
    stopped = true
    tellJoined()
    stream.close().catch(error => complain(error.stack))
  })
  for await (const { partition, offset, value, metadata, commit } of stream) {
    await joined
    if (stopped) break
    const place = kept.get(partition)
    if (!place || (place.since >= 0 && metadata.consumer.generationId < place.since) || offset < place.next) continue
    place.next = offset + 1n
    tellRecord(partition, offset, value)
    try {
      await commit()
      tellCommit(partition, offset + 1n)
    } catch (error) {
      complain('commit', partition, offset, error.stack)
    }
  }
  await stop
  await consumer.close(true)
}
