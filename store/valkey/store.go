// Package valkeystore keeps counters in Valkey or Redis through valkey-go.
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
//	...
//	counters, err := valkeystore.New(client, valkeystore.Config{})
//
// Any [valkey.Client] will do: a single server, Sentinel, a cluster. The store
// does not close the client.
//
// Counters are plain strings under the names that [store.AppendName] makes, so
// that packages valkeystore and redisstore share them. Only INCRBY, GET, PEXPIRE,
// SET and TIME are used. An add takes one command and its reply is the new total;
// an add whose counter has an expiry in the same batch takes two more. No command
// names two keys, so none crosses the slots of a cluster.
//
// # Failures
//
// [store.Pipeline] says how a batch is split, which deadlines hold and how an
// outage is handled. In addition:
//
//   - The client does not tell which replies it got before a connection failed, so
//     then the whole chunk is unknown, except with AlwaysPipelining.
//   - Commands go through the client's pool for blocking commands, up to four
//     connections per server. On those that it multiplexes on, a chunk that ran
//     into its deadline would stay in front of the next one, and what a connection
//     has not answered when its ConnLifetime is over is sent again.
//   - Commands to a cluster are multiplexed all the same, because the client cannot
//     follow an ASK otherwise. So with ConnLifetime, keep the limiter's ChunkTimeout
//     to a second, after which the client would send again; and a chunk may not take
//     longer than ConnWriteTimeout.
//   - No command is marked as reading, so a client with SendToReplicas leaves them
//     to the primary unless its function sends everything away. A ReplicaOnly client
//     cannot be used: the server refuses every add.
//   - The client panics over replies of negative or absurd length. The store makes
//     errors of that, but cannot where the client reads on a goroutine of its own,
//     as it does with AlwaysPipelining or OnInvalidations, and at times without.
package valkeystore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
)

// Config configures a [Store]. The zero value is fine.
type Config struct {
	// Server names the server in reports. Default: the address that the client
	// has for it, or the mode of a client that has several.
	Server string
}

// Store is a [limiter.Store] on a valkey-go client. It implements
// [limiter.TimeTeller] too. Make one with [New]. It is safe for concurrent use
// and needs no closing.
type Store struct {
	client   valkey.Client
	cluster  bool
	pipeline *store.Pipeline
}

var (
	_ limiter.Store      = (*Store)(nil)
	_ limiter.TimeTeller = (*Store)(nil)
)

// New returns a store on client, which must outlive it. It sends nothing. A client
// that is nil is refused with an error that wraps [limiter.ErrInvalidConfig].
func New(client valkey.Client, cfg Config) (*Store, error) {
	if client == nil {
		return nil, fmt.Errorf("valkeystore: %w: the client is nil", limiter.ErrInvalidConfig)
	}
	server := cfg.Server
	if server == "" {
		server, _ = single(client)
	}
	s := &Store{client: client, cluster: client.Mode() == valkey.ClientModeCluster}
	s.pipeline = store.NewPipeline("valkeystore", server, s.send)
	return s, nil
}

// single returns the address of a client's only node and the client of that node,
// or the mode of a client that has several, and the client itself.
func single(client valkey.Client) (string, valkey.Client) {
	mode := client.Mode()
	if mode == valkey.ClientModeStandalone {
		if nodes := client.Nodes(); len(nodes) == 1 {
			for addr, node := range nodes {
				return addr, node
			}
		}
	}
	return string(mode), client
}

// Exchange implements [limiter.Store]. See [store.Pipeline.Exchange].
func (s *Store) Exchange(ctx context.Context, b *limiter.Batch) error {
	return s.pipeline.Exchange(ctx, b)
}

// Time implements [limiter.TimeTeller]. In a cluster it is the time of any node.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	return s.pipeline.Time(ctx, s.time)
}

func (s *Store) time(ctx context.Context) (time.Time, error) {
	parts, err := s.client.Do(ctx, s.client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, errors.New("the reply to TIME has an unexpected form")
	}
	return time.Unix(parts[0], parts[1]*1000), nil
}

// send is the store's [store.Sender].
func (s *Store) send(ctx context.Context, cmds []store.Command) {
	multi := make([]valkey.Completed, len(cmds))
	for i := range cmds {
		multi[i] = s.build(&cmds[i])
	}
	// A client with EnableRedirect sends a whole pipeline again if one of its
	// commands is redirected. That of its only node does not.
	_, client := single(s.client)
	results := client.DoMulti(ctx, multi...)
	redirected := false
	for i := range cmds {
		report(&cmds[i], &results[i])
		redirected = redirected || isRedirect(results[i].Error())
	}
	if redirected {
		// Any command that can be repeated has the client look for the primary.
		_, _ = s.time(ctx)
	}
}

func isRedirect(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "REDIRECT ")
}

// build makes the client's form of a command. Blocking gives the pipeline that it
// is in a connection to itself, and all the time until its deadline. Not in a
// cluster: there, the client mixes up the replies to blocking commands when it
// follows an ASK.
func (s *Store) build(c *store.Command) valkey.Completed {
	cmd := s.client.B().Arbitrary(verbs[c.Op]).Keys(c.Name)
	switch c.Op {
	case store.OpCreate:
		cmd = cmd.Args("0", "PX", strconv.FormatInt(c.Arg, 10), "NX")
	case store.OpIncrBy, store.OpPExpire:
		cmd = cmd.Args(strconv.FormatInt(c.Arg, 10))
	}
	if s.cluster {
		return cmd.Build()
	}
	return cmd.Blocking()
}

var verbs = [...]string{
	store.OpCreate:  "SET",
	store.OpIncrBy:  "INCRBY",
	store.OpPExpire: "PEXPIRE",
	store.OpGet:     "GET",
}

// report tells what became of a command.
func report(to *store.Command, result *valkey.ValkeyResult) {
	if err := result.NonValkeyError(); err != nil {
		reportFailure(to, err)
		return
	}
	msg, err := result.ToMessage()
	switch {
	case valkey.IsValkeyNil(err):
		to.ReplyNil()
	case err != nil:
		to.Refuse(err)
	case msg.IsInt64():
		v, _ := msg.ToInt64()
		to.ReplyInt(v)
	case msg.IsString():
		s, _ := msg.ToString()
		to.ReplyText(s)
	default:
		to.BadReply()
	}
}

// reportFailure tells why there is no reply.
func reportFailure(to *store.Command, err error) {
	if _, ok := valkey.IsValkeyErr(err); ok {
		to.Reject(err) // the server did not let the client in
		return
	}
	if errors.Is(err, valkey.ErrClosing) || errors.Is(err, valkey.ErrNoSlot) {
		to.NotSent(err) // a connection in use outlives the client, so there was none
		return
	}
	to.Lose(err)
}
