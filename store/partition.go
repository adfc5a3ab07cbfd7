package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Partitions spreads keys over several stores. It implements
// [limiter.Partitioned]; make one with [Partition]. It is safe for concurrent use
// and never changes.
type Partitions struct {
	parts []limiter.Part
	seeds []uint64 // by part: the hash of its name
}

var _ limiter.Partitioned = (*Partitions)(nil)

// Partition returns a store that keeps each key in one of the given parts, chosen
// by rendezvous hashing on their names: a key belongs to the part with which it
// scores highest. So the order of the parts does not matter, where a store is
// reached does not matter, and adding or removing one of n parts moves about one
// key in n, from or to that part only. A key that moves begins anew.
//
// All nodes must use the same names. The hash is part of this contract and does
// not change.
//
// There must be at least one part, each with a name of its own and a store. The
// error names all problems and wraps [limiter.ErrInvalidConfig].
func Partition(parts ...limiter.Part) (*Partitions, error) {
	var problems []string
	if len(parts) == 0 {
		problems = append(problems, "there are no parts, want at least one")
	}
	first := make(map[string]int, len(parts))
	for i, part := range parts {
		if part.Name == "" {
			problems = append(problems, fmt.Sprintf("parts[%d].Name is empty", i))
		} else if j, ok := first[part.Name]; ok {
			problems = append(problems, fmt.Sprintf("parts[%d].Name is %q, which is that of parts[%d]", i, part.Name, j))
		} else {
			first[part.Name] = i
		}
		if part.Store == nil {
			problems = append(problems, fmt.Sprintf("parts[%d].Store is nil", i))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("store: %w: %s", limiter.ErrInvalidConfig, strings.Join(problems, "; "))
	}

	p := &Partitions{
		parts: append([]limiter.Part(nil), parts...),
		seeds: make([]uint64, len(parts)),
	}
	for i, part := range parts {
		p.seeds[i] = hash(part.Name)
	}
	return p, nil
}

// Parts implements [limiter.Partitioned]. The slice is a copy.
func (p *Partitions) Parts() []limiter.Part {
	return append([]limiter.Part(nil), p.parts...)
}

// PartOf implements [limiter.Partitioned]. It does not allocate.
func (p *Partitions) PartOf(key string) int {
	h := hash(key)
	best, bestScore := 0, mix(h^p.seeds[0])
	for i := 1; i < len(p.seeds); i++ {
		score := mix(h ^ p.seeds[i])
		if score > bestScore || score == bestScore && p.parts[i].Name < p.parts[best].Name {
			best, bestScore = i, score
		}
	}
	return best
}

// Exchange implements [limiter.Store] for those who do not use the parts one by
// one, as the limiter does. The parts work in parallel on copies of their
// operations. The error joins those of the parts.
func (p *Partitions) Exchange(ctx context.Context, b *limiter.Batch) error {
	shares := p.divide(b)
	errs := make([]error, len(shares))
	var wg sync.WaitGroup
	for i := range shares {
		share := &shares[i]
		if numOps(&share.batch) == 0 {
			continue
		}
		wg.Go(func() {
			if err := p.parts[i].Store.Exchange(ctx, &share.batch); err != nil {
				errs[i] = fmt.Errorf("store: part %q: %w", p.parts[i].Name, err)
			}
		})
	}
	wg.Wait()
	for i := range shares {
		shares[i].copyResults(b)
	}
	return errors.Join(errs...)
}

// share is what one part has to do of a batch.
type share struct {
	batch               limiter.Batch
	adds, expires, gets []int // which operations of the whole batch these are
}

// divide copies the operations of b to the shares of the parts that do them.
func (p *Partitions) divide(b *limiter.Batch) []share {
	shares := make([]share, len(p.parts))
	for i := range shares {
		s := &shares[i]
		s.batch = *b
		s.batch.Adds, s.batch.Expires, s.batch.Gets, s.batch.Servers = nil, nil, nil, nil
	}
	for i, add := range b.Adds {
		s := &shares[p.PartOf(add.Key)]
		s.batch.Adds = append(s.batch.Adds, add)
		s.adds = append(s.adds, i)
	}
	for i, expire := range b.Expires {
		s := &shares[p.PartOf(expire.Key)]
		s.batch.Expires = append(s.batch.Expires, expire)
		s.expires = append(s.expires, i)
	}
	for i, get := range b.Gets {
		s := &shares[p.PartOf(get.Key)]
		s.batch.Gets = append(s.batch.Gets, get)
		s.gets = append(s.gets, i)
	}
	return shares
}

// copyResults copies the results of s to the whole batch.
func (s *share) copyResults(b *limiter.Batch) {
	for i, op := range s.adds {
		b.Adds[op] = s.batch.Adds[i]
	}
	for i, op := range s.expires {
		b.Expires[op] = s.batch.Expires[i]
	}
	for i, op := range s.gets {
		b.Gets[op] = s.batch.Gets[i]
	}
	b.Servers = append(b.Servers, s.batch.Servers...)
}

// hash is FNV-1a. It is written out so that what it returns can never change.
func hash(s string) uint64 {
	const (
		offset = 14695981039346656037
		prime  = 1099511628211
	)
	h := uint64(offset)
	for i := range len(s) {
		h ^= uint64(s[i])
		h *= prime
	}
	return h
}

// mix is the finalizer of SplitMix64. FNV alone hardly changes its upper bits
// between similar strings, and scores are compared by these.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	h ^= h >> 31
	return h
}
