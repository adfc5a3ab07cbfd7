// Package redisstore keeps counters in Redis or Valkey through go-redis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	counters, err := redisstore.New(rdb, redisstore.Config{})
//
// Any [redis.UniversalClient] will do: a single server, Sentinel, a cluster, a
// ring. The store does not close the client.
//
// Counters are plain strings under the names that [store.AppendName] makes, so
// that packages redisstore and valkeystore share them. Only INCRBY, GET, PEXPIRE,
// SET and TIME are used. An add takes one command and its reply is the new total;
// an add whose counter has an expiry in the same batch takes two more. No command
// names two keys, so none crosses the slots of a cluster.
//
// # Failures
//
// [store.Pipeline] says how a batch is split, which deadlines hold and how an
// outage is handled. In addition:
//
//   - The client's retries are off for these commands, whatever MaxRetries is:
//     go-redis would send a whole pipeline again after a timeout, and so count
//     everything twice. Redirects within a cluster are followed.
//   - What was replied counts as applied, even if the connection fails before the
//     last reply.
//   - A deadline ends an exchange also if the client ignores it. Setting
//     ContextTimeoutEnabled is better all the same: otherwise the connection stays
//     occupied until its ReadTimeout, and replies that came in time count as lost.
//   - The client panics over a reply of absurd length. The store makes an error of
//     that, but cannot for a cluster or a ring, whose replies the client reads on
//     goroutines of its own.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
)

// Config configures a [Store]. The zero value is fine.
type Config struct {
	// Server names the server in reports. Default: the address that the client
	// has for it, or "cluster" or "ring".
	Server string
}

// Store is a [limiter.Store] on a go-redis client. It implements
// [limiter.TimeTeller] too. Make one with [New]. It is safe for concurrent use
// and needs no closing.
type Store struct {
	client   redis.UniversalClient
	pipeline *store.Pipeline
}

var (
	_ limiter.Store      = (*Store)(nil)
	_ limiter.TimeTeller = (*Store)(nil)
)

// New returns a store on client, which must outlive it. It sends nothing.
//
// A client with which the store could not keep its contract is refused, with an
// error that names all that has to be set and wraps [limiter.ErrInvalidConfig]:
// one that waits for replies without any limit, a cluster client that reads from
// replicas, which do not have the latest counts, and an AutoPipeliner, which sends
// pipelines over connections that it shares.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	server, problems := inspect(client)
	if len(problems) > 0 {
		return nil, fmt.Errorf("redisstore: %w: %s", limiter.ErrInvalidConfig, strings.Join(problems, "; "))
	}
	if cfg.Server != "" {
		server = cfg.Server
	}
	s := &Store{client: client}
	s.pipeline = store.NewPipeline("redisstore", server, s.send)
	return s, nil
}

// inspect returns what a client calls its server, and why it cannot be used. Of
// types that are not go-redis' own nothing can be seen.
func inspect(client redis.UniversalClient) (server string, problems []string) {
	switch c := client.(type) {
	case nil:
		return "", []string{"the client is nil"}
	case *redis.Client:
		o := c.Options()
		return o.Addr, timeoutProblems(o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled)
	case *redis.ClusterClient:
		o := c.Options()
		problems = timeoutProblems(o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled)
		if o.ReadOnly { // which RouteByLatency and RouteRandomly imply
			problems = append(problems, "the client reads from replicas, want ReadOnly, RouteByLatency and RouteRandomly unset")
		}
		return "cluster", problems
	case *redis.Ring:
		o := c.Options()
		return "ring", timeoutProblems(ringTimeout(o.ReadTimeout), ringTimeout(o.WriteTimeout), o.ContextTimeoutEnabled)
	case *redis.AutoPipeliner:
		return "", []string{"the client is an AutoPipeliner, want the client that it was made from"}
	default:
		return "redis", nil
	}
}

// timeoutProblems judges the timeouts of a client by the values that it works
// with: 0 means that only the context's deadline holds, and less than 0 that none
// does.
func timeoutProblems(read, write time.Duration, contextEnabled bool) []string {
	if bounded(read, contextEnabled) && bounded(write, contextEnabled) {
		return nil
	}
	return []string{"the client can wait for ever, want ReadTimeout and WriteTimeout unset or positive, or -1 with ContextTimeoutEnabled"}
}

func bounded(timeout time.Duration, contextEnabled bool) bool {
	return timeout > 0 || timeout == 0 && contextEnabled
}

// ringTimeout returns what the clients of a ring make of an option, which the
// ring shows as it was set.
func ringTimeout(option time.Duration) time.Duration {
	if option == 0 {
		return 5 * time.Second
	}
	if option == -1 {
		return 0
	}
	return option
}

// Exchange implements [limiter.Store]. See [store.Pipeline.Exchange].
func (s *Store) Exchange(ctx context.Context, b *limiter.Batch) error {
	return s.pipeline.Exchange(ctx, b)
}

// Time implements [limiter.TimeTeller]. In a cluster it is the time of any node.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	return s.pipeline.Time(ctx, func(ctx context.Context) (time.Time, error) {
		return s.client.Time(ctx).Result()
	})
}

// send is the store's [store.Sender].
func (s *Store) send(ctx context.Context, cmds []store.Command) {
	// The arguments of all commands share one slice.
	size := 0
	for i := range cmds {
		size += numArgs(cmds[i].Op)
	}
	args := make([]any, 0, size)
	queued := make([]command, len(cmds))
	queue := make([]redis.Cmder, len(cmds))
	for i := range cmds {
		start := len(args)
		args = appendArgs(args, &cmds[i])
		queued[i].Cmd = redis.NewCmd(ctx, args[start:len(args):len(args)]...)
		queue[i] = &queued[i]
	}

	pipe := s.client.Pipeline()
	err := pipe.BatchProcess(ctx, queue...)
	if err == nil {
		_, err = pipe.Exec(ctx)
	}
	for i := range cmds {
		queued[i].report(&cmds[i], err)
	}
}

func numArgs(op store.Op) int {
	switch op {
	case store.OpCreate:
		return 6
	case store.OpGet:
		return 2
	default:
		return 3
	}
}

func appendArgs(args []any, c *store.Command) []any {
	switch c.Op {
	case store.OpCreate:
		return append(args, "set", c.Name, 0, "px", c.Arg, "nx")
	case store.OpIncrBy:
		return append(args, "incrby", c.Name, c.Arg)
	case store.OpPExpire:
		return append(args, "pexpire", c.Name, c.Arg)
	default:
		return append(args, "get", c.Name)
	}
}

// command is a command that the client sends once and that remembers its reply.
type command struct {
	*redis.Cmd
	replied bool
}

// NoRetry keeps the client from sending the pipeline again (rule S7).
func (c *command) NoRetry() bool { return true }

// SetErr is called by the client for each reply, with nil for one that is no
// error. It is called once more if a later reply fails, which would make a
// command that was performed look as if it were not.
func (c *command) SetErr(err error) {
	if c.replied {
		return
	}
	c.replied = err == nil
	c.Cmd.SetErr(err)
}

// report tells what became of the command. execErr is the error of the pipeline.
func (c *command) report(to *store.Command, execErr error) {
	if !c.replied {
		c.reportError(to, execErr)
		return
	}
	switch v := c.Val().(type) {
	case int64:
		to.ReplyInt(v)
	case string:
		to.ReplyText(v)
	default:
		to.BadReply()
	}
}

// reportError tells what became of a command that has no good reply.
func (c *command) reportError(to *store.Command, execErr error) {
	err := c.Err()
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		to.ReplyNil()
	case err == nil && execErr != nil:
		// The server did not let the client in. The client does not tell the commands
		// of that.
		to.Reject(execErr)
	case errors.As(err, &reply):
		to.Refuse(err)
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		to.NotSent(err)
	case err != nil:
		to.Lose(err)
	}
}
