package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetlimit/fleetlimit/limiter"
)

const (
	// maxInFlight is how many calls of a pipeline's sender run at once.
	maxInFlight = 4

	// patience is how long a call may overrun its deadline before it is
	// abandoned. A client that keeps deadlines returns in this time, and then
	// what it knows of each command is not lost.
	patience = 10 * time.Millisecond

	// maxProbe is how many counters a probe reads: enough to find a live node of
	// a cluster of which others are dead.
	maxProbe = 16
)

var (
	errBusy    = errors.New("earlier calls have not returned yet")
	errNoReply = errors.New("no reply")
	errInvalid = errors.New("delta or lifetime is not positive")
)

// Sender sends commands to a server in one pipeline and reports on each of them
// through its methods. What it says nothing about counts as sent and lost.
//
// It must not send a command twice, whatever fails, except after the server
// refused it with a redirect, and must not keep cmds. It should return when ctx
// is done; the commands are its own until it does.
type Sender func(ctx context.Context, cmds []Command)

// Pipeline performs batches on a server of the Redis protocol. It is what an
// adapter is made of: the adapter adds a [Sender] for its client.
//
// A batch is split into chunks of up to 1,000 operations with all operations of a
// key in one, of which up to 4 are under way at once. Each has
// [limiter.Batch.ChunkTimeout]. A call that overruns it, or the end of the
// context, is abandoned: it finishes on memory of its own, and takes up one of
// the 4 places until it does.
//
// Adds are never sent to a server that has not been heard from: before the first
// exchange, and after a chunk that got no reply at all, some counters are read
// first. While that fails nothing is sent, so in an outage counts are known to be
// not applied, rather than lost one chunk after the other. For the same reason a
// chunk without any reply ends the exchange.
//
// A Pipeline is safe for concurrent use.
type Pipeline struct {
	pkg    string
	server string
	send   Sender

	places chan struct{}
	heard  atomic.Bool // whether the server replied to the latest chunk
	plans  sync.Pool
	chunks sync.Pool
}

// NewPipeline returns a pipeline for the adapter in package pkg. The name of the
// server goes into reports; if it is an address with credentials before an '@',
// these are left out.
func NewPipeline(pkg, server string, send Sender) *Pipeline {
	return &Pipeline{
		pkg:    pkg,
		server: server[strings.LastIndexByte(server, '@')+1:],
		send:   send,
		places: make(chan struct{}, maxInFlight),
		plans:  sync.Pool{New: func() any { return newPlan() }},
		chunks: sync.Pool{New: func() any { return newChunk() }},
	}
}

// Exchange performs b as [limiter.Store] demands. An add whose counter has an
// expiry in the same batch first creates the counter with this expiry if there is
// none. So no counter without an expiry stays behind if the exchange ends halfway;
// and since a counter that did exist may have another expiry, the expiry itself
// is sent as well. Of several expiries the latest holds.
//
// The error names the operations that failed by their number only, and the first
// reason of each kind. Those of the client and of ctx can be found in it with
// [errors.Is] and [errors.As]; all timeouts are a [context.DeadlineExceeded].
func (p *Pipeline) Exchange(ctx context.Context, b *limiter.Batch) error {
	reset(b)
	n := numOps(b)
	if n == 0 {
		return nil
	}
	x := &exchange{Pipeline: p, b: b}
	x.run(ctx)
	x.report()
	failed := countFailed(b)
	if failed == 0 {
		return nil
	}
	return &exchangeError{pkg: p.pkg, failed: failed, total: n, failures: x.failures}
}

// Time asks the server for its time with ask, and returns when ctx is done even if
// ask does not. The error is as that of [Pipeline.Exchange].
func (p *Pipeline) Time(ctx context.Context, ask func(context.Context) (time.Time, error)) (time.Time, error) {
	var now time.Time
	err := ctx.Err()
	if err == nil {
		now, err = p.askTime(ctx, ask)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: time: %w", p.pkg, newFailure(kindOf(err), err, ""))
	}
	return now, nil
}

// askTime calls ask, or abandons it when ctx is done.
func (p *Pipeline) askTime(ctx context.Context, ask func(context.Context) (time.Time, error)) (time.Time, error) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	type answer struct {
		now time.Time
		err error
	}
	answers := make(chan answer, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-p.places }()
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a.err = panicError(r)
			}
			answers <- a
		}()
		a.now, a.err = ask(ctx)
	}()
	if !wait(ctx, done) {
		return time.Time{}, ctx.Err()
	}
	a := <-answers
	return a.now, a.err
}

// reset makes every operation of b one that was not sent.
func reset(b *limiter.Batch) {
	for i := range b.Adds {
		b.Adds[i].Total, b.Adds[i].Outcome = 0, limiter.NotApplied
	}
	for i := range b.Expires {
		b.Expires[i].Outcome = limiter.NotApplied
	}
	for i := range b.Gets {
		b.Gets[i].Total, b.Gets[i].OK = 0, false
	}
}

// exchange is one run of [Pipeline.Exchange].
type exchange struct {
	*Pipeline
	b *limiter.Batch

	mu       sync.Mutex // of all below
	failures []*failure
	commands int
	start    time.Time // of the first call, zero if there was none
	end      time.Time // of the last one
}

func (x *exchange) run(ctx context.Context) {
	if !x.heard.Load() && !x.probe(ctx) {
		return
	}
	pl := x.plans.Get().(*plan)
	defer x.plans.Put(pl)
	pl.divide(x.b)

	var next atomic.Int64
	var dead atomic.Bool
	work := func() {
		for !dead.Load() {
			i := int(next.Add(1)) - 1
			if i >= pl.chunks() {
				return
			}
			if !x.perform(ctx, pl.chunk(i)) {
				dead.Store(true)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(pl.chunks(), maxInFlight) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// probe says whether the server replies.
func (x *exchange) probe(ctx context.Context) bool {
	if !x.take(ctx) {
		return false
	}
	c := x.chunks.Get().(*chunk)
	c.buildProbe(x.b)
	return x.call(ctx, c)
}

// perform performs some operations of the batch in one call. It says whether
// there is any point in performing more.
func (x *exchange) perform(ctx context.Context, ops []int) bool {
	if !x.take(ctx) {
		return false
	}
	c := x.chunks.Get().(*chunk)
	if !c.build(x.b, ops) {
		x.fail(kindInvalid, errInvalid)
	}
	return x.call(ctx, c)
}

// take waits for one of the places for calls, which call gives back.
func (x *exchange) take(ctx context.Context) bool {
	if err := ctx.Err(); err != nil {
		x.fail(kindOf(err), err)
		return false
	}
	select {
	case x.places <- struct{}{}:
		return true
	default:
	}
	timeout := time.NewTimer(x.b.ChunkTimeout)
	defer timeout.Stop()
	select {
	case x.places <- struct{}{}:
		return true
	case <-ctx.Done():
		x.fail(kindOf(ctx.Err()), ctx.Err())
	case <-timeout.C:
		x.fail(kindTimeout, errBusy)
	}
	return false
}

// call sends a chunk and puts the results into the batch. It says whether the
// server replied to any of it. The chunk must not be used any more.
func (x *exchange) call(ctx context.Context, c *chunk) bool {
	if len(c.cmds) == 0 {
		<-x.places
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, x.b.ChunkTimeout)
	defer cancel()
	x.begin(len(c.cmds))
	defer x.finish()

	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-x.places }()
		defer c.recover() // clients have been seen to panic over malformed replies
		x.send(ctx, c.cmds)
	}()
	if !wait(ctx, done) {
		// The call goes on, and the chunk is its own.
		x.heard.Store(false)
		x.fail(kindOf(ctx.Err()), ctx.Err())
		return false
	}
	heard := x.settle(c)
	x.heard.Store(heard)
	x.chunks.Put(c)
	return heard
}

// wait waits until done is closed, but not much longer than ctx.
func wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// settle puts the results of a chunk into the batch and says whether the server
// replied to any of it.
func (x *exchange) settle(c *chunk) (heard bool) {
	b := x.b
	for i := range c.cmds {
		cmd := &c.cmds[i]
		heard = heard || cmd.replied
		if cmd.outcome != limiter.Applied && cmd.err == nil {
			cmd.Lose(errNoReply)
		}
		if cmd.target == noTarget {
			continue
		}
		if cmd.err != nil {
			x.fail(cmd.kind, cmd.err)
		}
		op := cmd.target
		switch {
		case op < len(b.Adds):
			b.Adds[op].Total, b.Adds[op].Outcome = cmd.value, cmd.outcome
		case op < len(b.Adds)+len(b.Expires):
			b.Expires[op-len(b.Adds)].Outcome = cmd.outcome
		case cmd.outcome == limiter.Applied:
			get := &b.Gets[op-len(b.Adds)-len(b.Expires)]
			get.Total, get.OK = cmd.value, true
		}
	}
	if !heard {
		x.fail(c.cmds[0].kind, c.cmds[0].err) // which a probe has not said yet
	}
	return heard
}

func (x *exchange) begin(commands int) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.start.IsZero() {
		x.start = now
	}
	x.commands += commands
}

func (x *exchange) finish() {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end = now
}

// fail records why operations failed, if it is the first failure of its kind.
func (x *exchange) fail(kind string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.failures {
		if f.kind == kind {
			return
		}
	}
	x.failures = append(x.failures, newFailure(kind, err, x.b.Prefix))
}

// report appends what the exchange cost to the batch.
func (x *exchange) report() {
	if x.start.IsZero() {
		return
	}
	r := limiter.ServerReport{
		Server:   x.server,
		Duration: x.end.Sub(x.start),
		Commands: x.commands,
	}
	if len(x.failures) > 0 {
		r.ErrorKind = x.failures[0].kind
	}
	x.b.Servers = append(x.b.Servers, r)
}

// chunk is the commands of one call. It owns all that they point to.
type chunk struct {
	cmds  []Command
	names []byte                    // the names of all commands
	ends  []int                     // where in names each one ends
	lives map[limiter.Counter]int64 // the expiries of counters, in milliseconds
}

func newChunk() *chunk { return &chunk{lives: make(map[limiter.Counter]int64)} }

// build makes the commands for the given operations of b, whose outcomes are
// unknown from here on. It says whether all of them are valid; those that are not
// get no command.
func (c *chunk) build(b *limiter.Batch, ops []int) (valid bool) {
	c.reset()
	for _, op := range ops {
		if i := op - len(b.Adds); 0 <= i && i < len(b.Expires) && b.Expires[i].Lifetime > 0 {
			c.lives[b.Expires[i].Counter] = millis(b.Expires[i].Lifetime)
		}
	}
	valid = true
	for _, op := range ops {
		i := op
		if i < len(b.Adds) {
			add := &b.Adds[i]
			if add.Delta < 1 {
				valid = false
				continue
			}
			add.Outcome = limiter.Unknown
			if life, ok := c.lives[add.Counter]; ok {
				c.add(OpCreate, b.Prefix, &add.Counter, life, noTarget)
				delete(c.lives, add.Counter) // once is enough
			}
			c.add(OpIncrBy, b.Prefix, &add.Counter, add.Delta, op)
			continue
		}
		i -= len(b.Adds)
		if i < len(b.Expires) {
			expire := &b.Expires[i]
			if expire.Lifetime <= 0 {
				valid = false
				continue
			}
			expire.Outcome = limiter.Unknown
			c.add(OpPExpire, b.Prefix, &expire.Counter, millis(expire.Lifetime), op)
			continue
		}
		c.add(OpGet, b.Prefix, &b.Gets[i-len(b.Expires)].Counter, 0, op)
	}
	c.nameAll()
	return valid
}

// buildProbe makes commands that read a few counters of b, wherever they are.
func (c *chunk) buildProbe(b *limiter.Batch) {
	c.reset()
	n := numOps(b)
	for i := range min(n, maxProbe) {
		c.add(OpGet, b.Prefix, counterOf(b, i*n/min(n, maxProbe)), 0, noTarget)
	}
	c.nameAll()
}

func (c *chunk) reset() {
	clear(c.cmds)
	c.cmds, c.names, c.ends = c.cmds[:0], c.names[:0], c.ends[:0]
	clear(c.lives)
}

func (c *chunk) add(op Op, prefix string, counter *limiter.Counter, arg int64, target int) {
	c.cmds = append(c.cmds, Command{Op: op, Arg: arg, target: target})
	c.names = AppendName(c.names, prefix, *counter)
	c.ends = append(c.ends, len(c.names))
}

// nameAll gives the commands their names, which together take one allocation.
func (c *chunk) nameAll() {
	names := string(c.names)
	start := 0
	for i, end := range c.ends {
		c.cmds[i].Name = names[start:end]
		start = end
	}
}

// recover, deferred, makes a panic the failure of all commands that have no
// result yet.
func (c *chunk) recover() {
	r := recover()
	if r == nil {
		return
	}
	err := panicError(r)
	for i := range c.cmds {
		if cmd := &c.cmds[i]; cmd.outcome == limiter.Unknown && cmd.err == nil {
			cmd.Lose(err)
		}
	}
}

func panicError(r any) error { return fmt.Errorf("panic: %v", r) }

// millis rounds d up to milliseconds: 0 would expire a counter at once.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
