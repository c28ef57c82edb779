import { createInterface } from 'node:readline'
import kafkajs from 'kafkajs'
import { tell } from './lines.mjs'

const { MemberAssignment, MemberMetadata } = kafkajs.AssignerProtocol

// Reads lines `assignment HEX` and `subscription HEX`, and tells how KafkaJS reads them.
export async function decode () {
  for await (const text of createInterface({ input: process.stdin })) {
    const [kind, encoded] = text.split(' ')
    const data = Buffer.from(encoded, 'hex')
    const read = kind === 'assignment'
      ? MemberAssignment.decode(data).assignment
      : MemberMetadata.decode(data).topics
    tell('decoded', { client: 'kafkajs', read })
  }
}
