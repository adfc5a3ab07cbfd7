// Package cache is a bounded map from string keys to pointers for values that
// are read far more often than they come and go. A hit costs about as much as one
// of a plain map, and up to half more if there are many keys. Frequently used keys
// survive a scan of random ones, and entries leave after an idle timeout or a time
// to live.
//
// # Values
//
// The cache stores pointers to the caller's own type, which embeds a [Link] by
// value. [Cache.GetOrAdd] makes sure that racing callers get one and the same
// value for a key. A value belongs to one key of one cache: once evicted it may
// be added again, but only under the key that it had.
//
// # Which entries leave
//
// An entry has a deadline:
//
//	min(last touch + IdleTimeout, added or last renewed + TTL)
//
// [Cache.Get] moves no deadline and is not counted as a use, because that would
// make it slow. Instead, the owner calls [Cache.Touch] for the keys that it saw
// in use, from time to time and off the hot path.
//
// An entry is never expired early. At its deadline it ends for GetOrAdd, Touch
// and Renew; Get may find it until maintenance has removed it. Maintenance,
// which expires and evicts, runs within GetOrAdd, Touch and Renew, in
// [Cache.Maintain], and once per second in a goroutine of the cache's own. It
// groups deadlines in slices of 1.07 seconds and may be that late, so all in all
// an entry is gone about two seconds after its deadline. With [Config.Now] set
// there is no goroutine, and somebody must call Maintain from time to time.
//
// When the cache is full, W-TinyLFU decides: the key that was added and touched
// less often of late gives way, which may be the new one. So a value that
// GetOrAdd has added may be evicted already when it returns.
//
// # The front table
//
// All entries are kept by an otter cache, where a read costs a few times as much
// as in a plain map. In front of it is a table of the values that were found
// lately, in sets of seven. The hash of a key says in which set its value may be,
// and eight more of its bits, kept in one word for the whole set, which of the
// seven to look at. A Get that finds its key there is done: no lock, no clock, no
// write, no allocation. Otherwise it asks otter and puts the answer in the set.
// The table costs 16 bytes per entry; when the cache is full, 2 % of the entries
// do not fit in their sets.
//
// Sets are written without coordination with otter or with each other, so one may
// hold a value that is stale, or under a wrong tag. That is harmless, because a
// value knows its key and whether it was evicted:
//
//   - The value of another key does not match.
//   - An evicted value is marked before it leaves otter, hence before its key can
//     be added anew, and no longer matches.
//   - A value that was added again is unmarked, and is then what otter holds for
//     its key. There is never more than one unmarked value of a key.
//   - A value that is missed is found in otter, and put in its set again.
//
// An eviction also removes the value from its set, so that the table does not
// hold on to it.
package cache
