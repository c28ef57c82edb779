// One member of a consumer group: `node member.mjs CLIENT OPTIONS`, OPTIONS as JSON; or `node
// member.mjs kafkajs decode`, which tells how KafkaJS reads subscriptions and assignments.
//
// It prints what it does as Kafka's VerifiableConsumer does, one JSON object a line, commits what it
// has printed, and leaves the group upon SIGTERM.
const PROGRAMS = { kafkajs: './kafkajs.mjs', platformatic: './platformatic.mjs' }
const stop = new Promise(resolve => process.once('SIGTERM', resolve))
const [client, options] = process.argv.slice(2)
if (options === 'decode') {
  const { decode } = await import('./decode.mjs')
  await decode()
} else {
  const { run } = await import(PROGRAMS[client])
  await run(JSON.parse(options), stop)
}
