// What a member prints, as Kafka's VerifiableConsumer does: one JSON object a line.
import { writeSync } from 'node:fs'

export const SESSION_MS = 10_000
export const HEARTBEAT_MS = 300

export function tell (name, fields) {
  writeSync(1, JSON.stringify({ name, ...fields }) + '\n')
}

export function complain (...words) {
  writeSync(2, new Date().toISOString() + ' ' + words.map(String).join(' ') + '\n')
}

export function tellRecord (partition, offset, value) {
  tell('record_data', { partition, offset: Number(offset), value: value.toString() })
}

export function tellCommit (partition, offset) {
  tell('offsets_committed', { offsets: [{ partition, offset: Number(offset) }], success: true })
}

// An eager member has nothing between two assignments.
export class Assigned {
  constructor (topic) {
    this.topic = topic
    this.partitions = []
  }

  replace (partitions) {
    this.#say('partitions_revoked')
    this.partitions = partitions
    this.#say('partitions_assigned')
  }

  #say (name) {
    const partitions = this.partitions.map(partition => ({ topic: this.topic, partition }))
    if (partitions.length) tell(name, { partitions })
  }
}
