package conformance

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Fuzz runs random batches on the store and on a model, a map, and compares all
// that they answer. A failure prints the shortest beginning of the batches that
// fails. The corpus is run by plain go test too.
func (s StoreSuite) Fuzz(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{opAdd, 1, 5, opGet, 1, 0, opEnd, 0, 0, opAdd, 1, 7})
	f.Add([]byte{opAdd, 0, 1, opAdd, 8, 2, opAdd, 16, 3, opAdd, 32, 4, opEnd, 0, 0, opGet, 0, 0, opGet, 8, 0, opGet, 16, 0, opGet, 32, 0})
	f.Add([]byte{opExpire, 2, 0, opGet, 2, 0, opEnd, 0, 0, opAdd, 2, 255, opAdd, 2, 255, opExpire, 2, 0, opGet, 2, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		subject := s.subject(t)
		defer subject.cleanUp()
		if failure := subject.replayShortest(decode(encoded)); failure != nil {
			t.Error(failure)
		}
	})
}

// maxSteps bounds a script, so that a failing one is soon shortened.
const maxSteps = 300

// step is one operation of a script, or the end of a batch.
type step struct {
	op      byte
	counter limiter.Counter // with an epoch relative to the current one
	delta   int64
}

const (
	opAdd byte = iota
	opExpire
	opGet
	opEnd
	numOps
)

func (st step) String() string {
	c := fmt.Sprintf("key %q, epoch %+d, series %d", st.counter.Key, st.counter.Epoch, st.counter.Series)
	switch st.op {
	case opAdd:
		return fmt.Sprintf("add %d to %s", st.delta, c)
	case opExpire:
		return "expire " + c
	case opGet:
		return "get " + c
	default:
		return "-- next batch"
	}
}

// fuzzKeys are few, so that steps meet, and look like parts of each other.
var fuzzKeys = [...]string{"", "k", "k:", "k:1", "{k}", "1", "\x00", "\xff"}

// decode makes a script of three bytes for each step. Every string of bytes is a
// script.
func decode(encoded []byte) []step {
	var script []step
	for ; len(encoded) >= 3 && len(script) < maxSteps; encoded = encoded[3:] {
		which, size := encoded[1], encoded[2]
		script = append(script, step{
			op: encoded[0] % numOps,
			counter: limiter.Counter{
				Key:    fuzzKeys[which%8],
				Epoch:  -int64(which / 8 % 4),
				Series: limiter.Series(which / 32 % 3),
			},
			delta: 1 + int64(size)<<(size%40), // far from an overflow, in all
		})
	}
	return script
}

// replayShortest replays script and returns nil, or how its shortest beginning
// that fails does so.
func (s *storeSubject) replayShortest(script []step) error {
	failure := s.replay(script)
	if failure == nil {
		return nil
	}
	for n := 1; n < len(script); n++ {
		if err := s.replay(script[:n]); err != nil {
			script, failure = script[:n], err
			break
		}
	}
	var lines strings.Builder
	for _, st := range script {
		fmt.Fprintf(&lines, "    %v\n", st)
	}
	return fmt.Errorf("%w\nthe shortest script that shows it, after which all is read:\n%s", failure, &lines)
}

// replay runs script on the store and on a model, in a namespace of its own, and
// then reads all counters.
func (s *storeSubject) replay(script []step) error {
	prefix := s.prefix + "/" + rand.Text()
	epoch := epochOf(s.now(), epochLength)
	m := make(model)
	b := s.batchOf(prefix)
	for _, st := range script {
		c := st.counter
		c.Epoch += epoch
		switch st.op {
		case opAdd:
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: st.delta})
		case opExpire:
			b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Hour})
		case opGet:
			b.Gets = append(b.Gets, limiter.Get{Counter: c})
		case opEnd:
			if err := s.compare(m, b); err != nil {
				return err
			}
			b = s.batchOf(prefix)
		}
	}
	if err := s.compare(m, b); err != nil {
		return err
	}
	b = s.batchOf(prefix)
	for c := range m {
		b.Gets = append(b.Gets, limiter.Get{Counter: c})
	}
	return s.compare(m, b)
}

// compare performs b on the store and on m and compares their answers.
func (s *storeSubject) compare(m model, b *limiter.Batch) error {
	if err := s.exchange(b); err != nil {
		return err
	}
	return m.check(b)
}

// model holds the counters of one prefix as a store should, none of them near an
// overflow and none expired.
type model map[limiter.Counter]int64

// check performs b's operations and compares what b says of them.
func (m model) check(b *limiter.Batch) error {
	for i, op := range b.Adds {
		m[op.Counter] += op.Delta
		got, want := fmt.Sprint(op.Outcome, " ", op.Total), fmt.Sprint(limiter.Applied, " ", m[op.Counter])
		if got != want {
			return differ(fmt.Sprintf("result of add %d, of %d, to %s", i, op.Delta, name(b.Prefix, op.Counter)), got, want)
		}
	}
	for i, op := range b.Expires {
		if op.Outcome != limiter.Applied {
			return differ(fmt.Sprintf("outcome of expiry %d, of %s", i, name(b.Prefix, op.Counter)), op.Outcome, limiter.Applied)
		}
	}
	for i, op := range b.Gets {
		got, want := fmt.Sprint(op.OK, " ", op.Total), fmt.Sprint(true, " ", m[op.Counter])
		if got != want {
			return differ(fmt.Sprintf("result of get %d, of %s", i, name(b.Prefix, op.Counter)), got, want)
		}
	}
	return nil
}
