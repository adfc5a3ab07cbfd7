package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/fleetlimit/fleetlimit/conformance"
	"github.com/fleetlimit/fleetlimit/limiter"
	"github.com/fleetlimit/fleetlimit/store"
)

// clusterAdapters are the adapters with clients of a cluster.
var clusterAdapters = []adapter{
	{name: "redisstore", open: func(tb testing.TB, addr string) limiter.Store {
		return newRedisStore(tb, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}))
	}},
	{name: "valkeystore", open: func(tb testing.TB, addr string) limiter.Store {
		return newValkeyStore(tb, valkey.ClientOption{InitAddress: []string{addr}})
	}},
}

// cluster is a cluster of two nodes, each with half of the slots.
type cluster struct {
	addrs [2]string
	nodes [2]*redis.Client
	ids   [2]string
}

const slots = 16384

// startCluster starts a cluster that ends with the test.
func startCluster(tb testing.TB) *cluster {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatal(err)
		}
		tb.Skip("a cluster needs redis-server: ", err)
	}
	ctx := context.Background()
	c := new(cluster)
	for i := range c.nodes {
		c.addrs[i] = startNode(tb, program)
		c.nodes[i] = direct(tb, c.addrs[i])
		if err := c.nodes[i].ClusterAddSlotsRange(ctx, i*slots/2, (i+1)*slots/2-1).Err(); err != nil {
			tb.Fatal(err)
		}
		c.ids[i] = c.nodes[i].ClusterMyID(ctx).Val()
	}
	host, port, _ := net.SplitHostPort(c.addrs[0])
	if err := c.nodes[1].ClusterMeet(ctx, host, port).Err(); err != nil {
		tb.Fatal(err)
	}
	for i := range c.nodes {
		for {
			info := c.nodes[i].ClusterInfo(ctx).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return c
}

// startNode starts a server in cluster mode and returns its address.
func startNode(tb testing.TB, program string) string {
	tb.Helper()
	for range 10 {
		// Ports below those that the kernel gives away, with room for that of the
		// cluster bus.
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--cluster-enabled", "yes", "--dir", tb.TempDir())
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		tb.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		if answers(addr, cmd.Process.Pid, ended) {
			return addr
		}
	}
	tb.Fatal("no server starts")
	return ""
}

// answers waits until the process answers at addr, or has ended because somebody
// else has the port.
func answers(addr string, pid int, ended <-chan struct{}) bool {
	client := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
	defer client.Close()
	for {
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if strings.Contains(client.Info(context.Background(), "server").Val(), fmt.Sprintf("process_id:%d\r", pid)) {
			return true
		}
	}
}

// TestClusterConformance runs the suite, but for outages, on a cluster.
func TestClusterConformance(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, a := range clusterAdapters {
		t.Run(a.name, func(t *testing.T) {
			conformance.StoreSuite{
				New:  func(tb testing.TB) limiter.Store { return a.open(tb, c.addrs[0]) },
				Peer: func(tb testing.TB, _ limiter.Store) limiter.Store { return a.open(tb, c.addrs[1]) },
			}.Test(t)
		})
	}
}

// TestS7_SlotsThatMoveCountOnce moves slots from one node to the other while both
// adapters add to counters in them.
func TestS7_SlotsThatMoveCountOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b := newBatch(t)
	for i := range 1000 {
		b.Adds = append(b.Adds, limiter.Add{Counter: limiter.Counter{Key: fmt.Sprint(i), Epoch: 7}, Delta: 1})
	}
	moved := make(chan struct{})
	rounds := make([]int, len(clusterAdapters))
	var wg sync.WaitGroup
	for i, a := range clusterAdapters {
		s := a.open(t, c.addrs[0])
		mine := *b
		mine.Adds = append([]limiter.Add(nil), b.Adds...)
		wg.Go(func() {
			for last := false; !last; rounds[i]++ {
				select {
				case <-moved:
					last = true
				default:
				}
				if err := s.Exchange(context.Background(), &mine); err != nil {
					t.Errorf("%s, round %d: %v", a.name, rounds[i], err)
					return
				}
			}
		})
	}
	ctx := context.Background()
	for i := range 100 {
		slot := c.nodes[0].ClusterKeySlot(ctx, string(store.AppendName(nil, b.Prefix, b.Adds[i].Counter))).Val()
		if slot < slots/2 {
			c.move(t, int(slot))
		}
	}
	close(moved)
	wg.Wait()

	b.Adds, b.Gets = nil, make([]limiter.Get, len(b.Adds))
	for i := range b.Gets {
		b.Gets[i].Counter = limiter.Counter{Key: fmt.Sprint(i), Epoch: 7}
	}
	exchange(t, clusterAdapters[0].open(t, c.addrs[1]), b)
	for i := range b.Gets {
		if got, want := b.Gets[i].Total, int64(rounds[0]+rounds[1]); got != want {
			t.Fatalf("counter %d is %d after %v rounds, want %d", i, got, rounds, want)
		}
	}
}

// move moves a slot from the first node to the second. A slot that has moved
// already is left alone.
func (c *cluster) move(t *testing.T, slot int) {
	t.Helper()
	ctx := context.Background()
	do := func(node int, args ...any) *redis.Cmd {
		t.Helper()
		cmd := c.nodes[node].Do(ctx, args...)
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
		return cmd
	}
	if err := c.nodes[0].Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[1]).Err(); err != nil {
		if strings.Contains(err.Error(), "not the owner") {
			return
		}
		t.Fatal(err)
	}
	do(1, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[0])
	host, port, _ := net.SplitHostPort(c.addrs[1])
	for {
		keys := c.nodes[0].ClusterGetKeysInSlot(ctx, slot, 100).Val()
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			do(0, "MIGRATE", host, port, key, 0, 5000)
		}
	}
	for _, node := range []int{1, 0} {
		do(node, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[1])
	}
}
