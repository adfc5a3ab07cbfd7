// Package store holds what stores have in common.
//
//   - [Partition] spreads keys over several stores.
//   - [AppendName] makes the name under which a server keeps a counter. Adapters
//     that use it share counters on one server, whatever client they are built on.
//   - [Pipeline] performs batches on a server that speaks the Redis protocol:
//     packages redisstore and valkeystore each add a client to it.
package store
