package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/internal/respproxy"
	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
)

func TestS1_BothClientsShareCounters(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr := s.addr(t)
			b := newBatch(t)
			for _, key := range []string{"", "team_42", "a:b", "{tag}", "\x00\xff\r\n", strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("x", 10_000)} {
				for series := range limiter.SeriesNodes + 1 {
					c := limiter.Counter{Key: key, Epoch: 7, Series: series}
					b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: int64(len(b.Adds) + 1)})
					b.Gets = append(b.Gets, limiter.Get{Counter: c})
				}
			}
			for round, a := range append(adapters, adapters...) {
				exchange(t, a.open(t, addr), b)
				for i := range b.Adds {
					if want := b.Adds[i].Delta * int64(round+1); b.Adds[i].Total != want || b.Gets[i].Total != want {
						t.Fatalf("round %d, by %s: add %d has total %d and reads %d, want %d", round, a.name, i, b.Adds[i].Total, b.Gets[i].Total, want)
					}
				}
			}
		})
	}
}

// TestS4_EveryWayOfWritingSetsTheExpiry is also about A2 (a unit that is wrong by
// a thousand) and A5 (lifetimes below a second).
func TestS4_EveryWayOfWritingSetsTheExpiry(t *testing.T) {
	t.Parallel()
	const immortal = -1 // what PTTL says of a key without expiry
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		ctx := context.Background()
		client := direct(t, addr)
		s := a.open(t, addr)
		c := limiter.Counter{Key: "k", Epoch: 7}
		add := []limiter.Add{{Counter: c, Delta: 1}}
		for _, lifetime := range []time.Duration{900 * time.Millisecond, 1500*time.Millisecond + 1, 2 * time.Minute, 90 * 24 * time.Hour} {
			expire := []limiter.Expire{{Counter: c, Lifetime: lifetime}}
			for _, way := range []struct {
				name    string
				existed bool          // whether the counter did before
				before  time.Duration // its expiry then, if any
				adds    []limiter.Add
				twice   bool // do it in two batches
			}{
				{name: "add and expiry of a new counter", adds: add},
				{name: "add and expiry of a counter without expiry", existed: true, adds: add},
				{name: "add and expiry of a counter with a shorter one", existed: true, before: lifetime / 2, adds: add},
				{name: "add and expiry of a counter with a longer one", existed: true, before: lifetime * 2, adds: add},
				{name: "expiry alone", existed: true},
				{name: "several adds", adds: append(add, add...)},
				{name: "add, then expiry", adds: add, twice: true},
			} {
				b := newBatch(t)
				name := string(store.AppendName(nil, b.Prefix, c))
				if way.existed {
					if err := client.Set(ctx, name, 41, way.before).Err(); err != nil {
						t.Fatal(err)
					}
				}
				b.Adds = way.adds
				if way.twice {
					exchange(t, s, b)
					if got := client.PTTL(ctx, name).Val(); got != immortal {
						t.Errorf("%s: an add alone sets an expiry of %v", way.name, got)
					}
					b.Adds = nil
				}
				b.Expires = expire
				began := time.Now()
				exchange(t, s, b)
				if b.Expires[0].Outcome != limiter.Applied {
					t.Errorf("%s: outcome is %v", way.name, b.Expires[0].Outcome)
				}
				got := client.PTTL(ctx, name).Val()
				passed := time.Since(began)
				// PTTL and the server's clock are good for a millisecond each.
				if got > lifetime+time.Millisecond || got < lifetime-passed-2*time.Millisecond {
					t.Errorf("%s: expiry of %v is %v after %v", way.name, lifetime, got, passed)
				}
			}
		}
	})
}

func TestS3_AnExpiryOfAnAbsentCounterCreatesNothing(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		b := newBatch(t)
		c := limiter.Counter{Key: "k", Epoch: 7}
		b.Expires = []limiter.Expire{{Counter: c, Lifetime: time.Minute}}
		b.Gets = []limiter.Get{{Counter: c, Total: 99}}
		exchange(t, a.open(t, addr), b)
		if b.Expires[0].Outcome != limiter.Applied || !b.Gets[0].OK || b.Gets[0].Total != 0 {
			t.Errorf("results = %+v, %+v", b.Expires[0], b.Gets[0])
		}
		if n := direct(t, addr).Exists(context.Background(), b.Prefix+":k:7").Val(); n != 0 {
			t.Error("the counter exists")
		}
	})
}

func TestAnAddTakesOneCommand(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		proxy := startProxy(t, addr)
		s := a.open(t, proxy.Addr())
		warm(t, s)
		names := []string{"INCRBY", "GET", "SET", "PEXPIRE"}
		passed := func() (counts [4]int) {
			for i, name := range names {
				counts[i] = proxy.Passed(name)
			}
			return counts
		}
		for _, tc := range []struct {
			name    string
			expires int
			gets    int
		}{
			{name: "adds"},
			{name: "adds with expiries", expires: numAdds},
			{name: "adds and gets", gets: numAdds},
		} {
			b := addBatch(t)
			for i := range tc.expires {
				b.Expires = append(b.Expires, limiter.Expire{Counter: b.Adds[i].Counter, Lifetime: time.Minute})
			}
			for i := range tc.gets {
				b.Gets = append(b.Gets, limiter.Get{Counter: b.Adds[i].Counter})
			}
			before := passed()
			exchange(t, s, b)
			got := passed()
			for i := range got {
				got[i] -= before[i]
			}
			if want := [4]int{numAdds, tc.gets, tc.expires, tc.expires}; got != want {
				t.Errorf("%s: %v of %v, want %v", tc.name, got, names, want)
			}
			want := []limiter.ServerReport{{Server: proxy.Addr(), Duration: b.Servers[0].Duration, Commands: numAdds + tc.gets + 2*tc.expires}}
			if diff := cmp.Diff(want, b.Servers); diff != "" || b.Servers[0].Duration <= 0 {
				t.Errorf("%s: report (-want +got):\n%s", tc.name, diff)
			}
		}
	})
}

func TestALargeBatchIsSplit(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		const n = 100_000
		s := a.open(t, addr)
		b := newBatch(t)
		for i := range n {
			c := limiter.Counter{Key: fmt.Sprintf("team_%d", i), Epoch: 7}
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: int64(i + 1)})
			if i%10 == 0 {
				b.Expires = append(b.Expires, limiter.Expire{Counter: c, Lifetime: time.Minute})
				b.Gets = append(b.Gets, limiter.Get{Counter: c})
			}
		}
		exchange(t, s, b)
		for i := range b.Adds {
			if op := b.Adds[i]; op.Outcome != limiter.Applied || op.Total != op.Delta {
				t.Fatalf("add %d = %+v", i, op)
			}
		}
		for i := range b.Gets {
			if op := b.Gets[i]; !op.OK || op.Total != int64(10*i+1) {
				t.Fatalf("get %d = %+v", i, op)
			}
		}

		// Let all of them expire.
		b.Adds, b.Gets, b.Expires, b.Servers = nil, nil, make([]limiter.Expire, n), nil
		for i := range b.Expires {
			b.Expires[i] = limiter.Expire{Counter: limiter.Counter{Key: fmt.Sprintf("team_%d", i), Epoch: 7}, Lifetime: time.Millisecond}
		}
		exchange(t, s, b)
	})
}

// TestSomebodyElsesKeys are errors of their own operations only.
func TestSomebodyElsesKeys(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		ctx := context.Background()
		client := direct(t, addr)
		b := newBatch(t)
		foreign := map[string]string{"text": "secret text", "negative": "-100", "too large": "9223372036854775808", "empty": ""}
		for key, value := range foreign {
			if err := client.Set(ctx, b.Prefix+":"+key+":7", value, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.RPush(ctx, b.Prefix+":list:7", "secret text").Err(); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"before", "text", "negative", "too large", "empty", "list", "after"} {
			c := limiter.Counter{Key: key, Epoch: 7}
			b.Adds = append(b.Adds, limiter.Add{Counter: c, Delta: 5})
			b.Gets = append(b.Gets, limiter.Get{Counter: c})
		}
		err := a.open(t, addr).Exchange(ctx, b)
		if err == nil {
			t.Fatal("no error")
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "text") || !strings.Contains(err.Error(), "10 of 14 operations") {
			t.Errorf("error = %v", err)
		}
		type result struct {
			Outcome limiter.Outcome
			Total   int64
			OK      bool
		}
		got := make(map[string]result)
		for i := range b.Adds {
			got[b.Adds[i].Key] = result{b.Adds[i].Outcome, b.Gets[i].Total, b.Gets[i].OK}
		}
		want := map[string]result{
			"before":    {limiter.Applied, 5, true},
			"text":      {limiter.NotApplied, 0, false},
			"negative":  {limiter.Unknown, 0, false}, // it is -95 now, which is no total
			"too large": {limiter.NotApplied, 0, false},
			"empty":     {limiter.NotApplied, 0, false},
			"list":      {limiter.NotApplied, 0, false},
			"after":     {limiter.Applied, 5, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
	})
}

func TestS11_AnAddThatWouldOverflowIsNotApplied(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		s := a.open(t, addr)
		b := newBatch(t)
		c := limiter.Counter{Key: "k", Epoch: 7}
		b.Adds = []limiter.Add{{Counter: c, Delta: math.MaxInt64}, {Counter: c, Delta: 1}}
		b.Gets = []limiter.Get{{Counter: c}}
		err := s.Exchange(context.Background(), b)
		if err == nil || b.Servers[0].ErrorKind != "refused" {
			t.Errorf("error = %v, report %+v", err, b.Servers)
		}
		if b.Adds[0].Outcome != limiter.Applied || b.Adds[0].Total != math.MaxInt64 || b.Adds[1].Outcome != limiter.NotApplied || b.Gets[0].Total != math.MaxInt64 {
			t.Errorf("results = %+v, %+v", b.Adds, b.Gets)
		}
	})
}

// TestAServerThatDoesNotLetTheClientIn changes the client's password while it is
// connected, because valkey-go makes no client without a connection.
func TestAServerThatDoesNotLetTheClientIn(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		for _, tc := range []struct {
			name string
			open func(tb testing.TB, addr, user, password string) limiter.Store
		}{
			{"redisstore", func(tb testing.TB, addr, user, password string) limiter.Store {
				return newRedisStore(tb, redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password}))
			}},
			{"valkeystore", func(tb testing.TB, addr, user, password string) limiter.Store {
				return newValkeyStore(tb, valkey.ClientOption{InitAddress: []string{addr}, Username: user, Password: password})
			}},
		} {
			t.Run(tc.name+" on "+s.name, func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				addr := s.addr(t)
				client := direct(t, addr)
				user, password := "user-"+rand.Text(), "password-"+rand.Text()
				acl := func(rules ...any) {
					t.Helper()
					if err := client.Do(ctx, append([]any{"ACL", "SETUSER", user}, rules...)...).Err(); err != nil {
						t.Fatal(err)
					}
				}
				acl("on", ">"+password, "~*", "+@all")
				t.Cleanup(func() { client.Do(ctx, "ACL", "DELUSER", user) })
				proxy := startProxy(t, addr)
				st := tc.open(t, proxy.Addr(), user, password)
				warm(t, st)

				check := func(what string) {
					t.Helper()
					b := addBatch(t)
					err := st.Exchange(ctx, b)
					if err == nil {
						t.Fatalf("%s: no error", what)
					}
					if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), b.Prefix) {
						t.Errorf("%s: error shows too much: %v", what, err)
					}
					if got := b.Servers[0].ErrorKind; got != "auth" {
						t.Errorf("%s: error kind = %q (%v), want auth", what, got, err)
					}
					for i := range b.Adds {
						if got := b.Adds[i].Outcome; got != limiter.NotApplied {
							t.Fatalf("%s: add %d is %v, want not applied", what, i+1, got)
						}
					}
				}
				acl("-incrby")
				check("no permission")
				acl("+incrby", "resetpass", ">another")
				proxy.CutAll()
				for { // until the client has noticed that it needs a new connection
					b := newBatch(t)
					b.Gets = []limiter.Get{{}}
					if _ = st.Exchange(ctx, b); b.Servers[0].ErrorKind == "auth" {
						break
					}
				}
				check("wrong password")
				acl(">" + password)
				recovered(t, st)
				exchange(t, st, addBatch(t))
			})
		}
	}
}

func TestTimeIsTheServers(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		ctx := context.Background()
		client := direct(t, addr)
		before := client.Time(ctx).Val()
		got, err := a.open(t, addr).(limiter.TimeTeller).Time(ctx)
		after := client.Time(ctx).Val()
		if err != nil || got.Before(before) || got.After(after) {
			t.Errorf("time = %v, %v, want between %v and %v", got, err, before, after)
		}
	})
}

func TestTimeOfADeadServerIsAnError(t *testing.T) {
	t.Parallel()
	forEachPair(t, func(t *testing.T, a adapter, addr string) {
		proxy := startProxy(t, addr)
		s := a.open(t, proxy.Addr())
		for name, reply := range map[string]string{"error": "-ERR no", "text": "+now", "one number": "*1\r\n:1", "words": "*2\r\n+a\r\n+b"} {
			proxy.SetRule(respproxy.Each("TIME", respproxy.Answer(reply+"\r\n")))
			if got, err := s.(limiter.TimeTeller).Time(context.Background()); err == nil {
				t.Errorf("reply %s makes the time %v", name, got)
			}
		}
		proxy.Down()
		if got, err := s.(limiter.TimeTeller).Time(context.Background()); err == nil {
			t.Errorf("time of a dead server = %v", got)
		}
	})
}

// TestPartitionedStoresWork has a store whose parts are on both servers.
func TestPartitionedStoresWork(t *testing.T) {
	t.Parallel()
	addrs := []string{servers[0].addr(t), servers[1].addr(t)}
	p, err := store.Partition(
		limiter.Part{Name: "redis", Store: adapters[0].open(t, addrs[0])},
		limiter.Part{Name: "valkey", Store: adapters[1].open(t, addrs[1])},
	)
	if err != nil {
		t.Fatal(err)
	}
	b := addBatch(t)
	exchange(t, p, b)
	if len(b.Servers) != 2 {
		t.Errorf("%d reports, want one of each part", len(b.Servers))
	}
	for i, addr := range addrs {
		for j, total := range read(t, addr, b) {
			want := int64(0)
			if p.PartOf(b.Adds[j].Key) == i {
				want = b.Adds[j].Delta
			}
			if total != want {
				t.Errorf("counter %d is %d in part %d, want %d", j, total, i, want)
			}
		}
	}
}

func TestErrorsCanBeTakenApart(t *testing.T) {
	t.Parallel()
	addr := servers[0].addr(t)
	b := newBatch(t)
	if err := direct(t, addr).RPush(context.Background(), b.Prefix+":k:7", "x").Err(); err != nil {
		t.Fatal(err)
	}
	b.Adds = []limiter.Add{{Counter: limiter.Counter{Key: "k", Epoch: 7}, Delta: 1}}
	err := adapters[0].open(t, addr).Exchange(context.Background(), b)
	var reply redis.Error
	if !errors.As(err, &reply) || !redis.HasErrorPrefix(reply, "WRONGTYPE") {
		t.Errorf("error = %v, want one that wraps the server's", err)
	}
}
