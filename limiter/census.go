package limiter

import "slices"

// census learns how many nodes there are: each adds one to a counter of the epoch,
// once per epoch and partition.
type census struct {
	epoch    int64 // the last one that this node took part in
	entered  bool
	settled  bool  // the epoch's total has been read after all had time to enter
	previous int64 // total of the epoch before, or what was last seen while the store fails
	current  int64

	owed []int64 // epochs whose counter's expiry is to be confirmed, the latest last

	add, expire, get int // indices in the batch, -1 if not part of it; of expire, the first
}

func newCensus() census { return census{add: -1, expire: -1, get: -1} }

// plan adds to the batch what is to be done for the census.
func (c *census) plan(p *partition, in *instant) {
	b := &p.batch
	if c.epoch != in.epoch {
		last := *c
		*c = newCensus()
		c.epoch, c.owed = in.epoch, slices.DeleteFunc(last.owed, func(epoch int64) bool { return epoch < in.epoch-int64(p.l.grid.epochs) })
		c.previous = last.current
		if !last.settled && p.health.failing() {
			c.previous = max(last.current, last.previous)
		}
	}
	counter := Counter{Epoch: in.epoch, Series: SeriesNodes}
	if !c.entered {
		c.add = len(b.Adds)
		b.Adds = append(b.Adds, Add{Counter: counter, Delta: 1})
		c.owed = append(c.owed, in.epoch)
	} else if !c.settled && p.l.settled(in.epoch-1, in.now) {
		c.get = len(b.Gets)
		b.Gets = append(b.Gets, Get{Counter: counter})
	}
	c.expire = len(b.Expires)
	for _, epoch := range c.owed {
		counter.Epoch = epoch
		b.Expires = append(b.Expires, Expire{Counter: counter, Lifetime: p.l.lifetime("", epoch, in.now)})
	}
}

// apply takes in the results. An add that may have arrived is not repeated.
func (c *census) apply(p *partition) {
	b := &p.batch
	if c.expire >= 0 {
		owed := c.owed[:0]
		for i, epoch := range c.owed {
			if b.Expires[c.expire+i].Outcome != Applied {
				owed = append(owed, epoch)
			}
		}
		c.owed = owed
	}
	if c.add >= 0 {
		if x := &b.Adds[c.add]; x.Outcome != NotApplied {
			c.entered = true
			c.current = max(c.current, x.Total)
		} else if last := len(c.owed) - 1; last >= 0 && c.owed[last] == c.epoch {
			c.owed = c.owed[:last] // there is no counter yet
		}
	}
	if c.get >= 0 && b.Gets[c.get].OK {
		c.settled = true
		c.current = max(c.current, b.Gets[c.get].Total)
	}
	c.add, c.expire, c.get = -1, -1, -1
	p.nodes.Store(max(1, c.previous, c.current))
}
