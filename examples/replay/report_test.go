package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(second int64) time.Time { return time.Unix(1_431_857_100+second, 0).UTC() }

func TestText(t *testing.T) {
	t.Parallel()
	r := report{
		Limit: 1000, WindowSeconds: 60, Nodes: 4, Spread: spreadRandom, Seed: 1,
		Files:      []fileReport{{Name: "a.log"}, {Name: "b.log", Error: "b.log: accesslog: after line 7: unexpected EOF"}},
		Lines:      lineReport{Read: 1_234_567, Replayed: 1_234_560, Unreadable: 7, Late: 3},
		Unreadable: []badLine{{"a.log", 12, "empty line"}, {"b.log", 3, "count is negative"}},
		From:       at(0), To: at(100_000),
		Requests: 1_234_560, Admitted: 1_000_000, Denied: 234_560, Keys: 400, KeysLimited: 2,
		MostLimited: []keyReport{
			{Key: "192.0.2.7", Requests: 500_000, Denied: 200_000, DeniedShare: .4, FirstLimited: at(60), LastLimited: at(9060), LimitedSeconds: 7200},
			{Key: "2001:db8::7", Requests: 40_000, Denied: 34_560, DeniedShare: .864, FirstLimited: at(5), LastLimited: at(5), LimitedSeconds: 0},
		},
		WorstOver: &overReport{Key: "192.0.2.7", WindowEnd: at(119), Admitted: 1045, Percent: 4.5},
		Store:     storeReport{Exchanges: 100_000, Commands: 308_640, CommandsPerRequest: .25, CensusCommands: 4321},
	}
	const want = `Limit: 1,000 requests per key in any 1m, on 4 nodes (requests spread at random)

Lines read            1,234,567   from 2 logs, 2015-05-17 10:05:00 to 2015-05-18 13:51:40 UTC
  replayed            1,234,560
    late                      3   out of order by more than -reorder, replayed at the time reached by then
  unreadable                  7
Requests              1,234,560
  admitted            1,000,000   81.0 %
  denied                234,560   19.0 %
Keys                        400
  ever limited                2   0.5 %
Store commands          308,640   0.25 per request, in 100,000 round trips
  and for census          4,321   by which the nodes count each other, in the time replayed

Worst over-admission: 4.5 % over the limit, for key 192.0.2.7 in the 1m that ended at
2015-05-17 10:06:59 UTC: 1,045 admitted against a limit of 1,000.

Most limited keys (times in UTC)
  key          requests   denied   share        first limited         last limited  limited for
  192.0.2.7     500,000  200,000  40.0 %  2015-05-17 10:06:00  2015-05-17 12:36:00           2h
  2001:db8::7    40,000   34,560  86.4 %  2015-05-17 10:05:05  2015-05-17 10:05:05           0s
"limited for" adds up the time between denials less than 1m apart.

Unreadable lines (the first 2 of 7)
  a.log:12: empty line
  b.log:3: count is negative

Not read to its end: b.log: accesslog: after line 7: unexpected EOF
`
	if diff := cmp.Diff(want, r.text()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestText_NeverOver(t *testing.T) {
	t.Parallel()
	r := report{Limit: 1, WindowSeconds: 0.5, Nodes: 1, Spread: spreadKey, Files: []fileReport{{}}, Store: storeReport{Unsent: 2}}
	text := r.text()
	for _, want := range []string{
		"never over the limit, in any 500ms of any key.\n",
		"Unsent                        2   admitted requests that the store was not told of\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("text does not hold %q:\n%s", want, text)
		}
	}
}

func TestShowKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", maxKey)
	for key, want := range map[string]string{
		"2001:db8::7":          "2001:db8::7",
		"\x1b[2Jgone":          `"\x1b[2Jgone"`,
		"right\u202eleft":      `"right\u202eleft"`,
		"\xff":                 `"\xff"`,
		long:                   long,
		long + "ü":             long[:len(long)-2] + "…",
		"\n" + long + long[:8]: `"\n` + long[:2*(maxKey-4)] + "…",
	} {
		if got := showKey(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -999: "-999", -123456: "-123,456"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestShortDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                       "0s",
		10 * time.Second:        "10s",
		time.Minute:             "1m",
		70 * time.Second:        "1m10s",
		time.Hour:               "1h",
		time.Hour + time.Second: "1h0m1s",
		10 * time.Hour:          "10h",
		90 * time.Minute:        "1h30m",
		1500 * time.Millisecond: "1.5s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestTally_LimitedTime(t *testing.T) {
	t.Parallel()
	tl := newTally(time.Minute)
	for _, s := range []int64{0, 30, 89, 149, 300, 301} { // 89 and 149 are a whole window apart
		tl.add(at(s), "key", 2, false)
	}
	tl.add(at(400), "key", 1, true)
	k := tl.keys["key"]
	if k.limited != 90*time.Second || !k.firstDenied.Equal(at(0)) || !k.lastDenied.Equal(at(301)) {
		t.Errorf("limited for %v from %v to %v, want 1m30s from %v to %v", k.limited, k.firstDenied, k.lastDenied, at(0), at(301))
	}
	if k.denied != 12 || tl.denied != 12 || k.admitted != 1 || tl.admitted != 1 {
		t.Errorf("key: %d denied, %d admitted; all: %d, %d; want 12, 1", k.denied, k.admitted, tl.denied, tl.admitted)
	}
}

func TestReport_WorstOverIsTheFullestThenEarliestThenFirstByName(t *testing.T) {
	t.Parallel()
	tl := newTally(time.Minute)
	tl.add(at(1), "within", 10, true)
	tl.add(at(1), "early-but-less", 11, true)
	for _, key := range []string{"b", "a", "c"} {
		tl.add(at(5), key, 12, true)
	}
	tl.add(at(9), "0-late", 12, true)
	want := &overReport{Key: "a", WindowEnd: at(5), Admitted: 12, Percent: 20}
	for range 20 { // the order of the keys is random
		r := newReport(options{limit: 10, window: time.Minute}, &input{}, tl, &countingStore{}, 0)
		if diff := cmp.Diff(want, r.WorstOver); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
}

func TestReport_MostLimitedAreSortedAndCut(t *testing.T) {
	t.Parallel()
	tl := newTally(time.Minute)
	for key, n := range map[string]int64{"a": 1, "b": 3, "c": 3, "d": 2} {
		tl.add(at(1), key, n, false)
	}
	r := newReport(options{limit: 10, window: time.Minute, top: 3}, &input{}, tl, &countingStore{}, 0)
	var keys []string
	for _, k := range r.MostLimited {
		keys = append(keys, k.Key)
	}
	if diff := cmp.Diff([]string{"b", "c", "d"}, keys); diff != "" || r.KeysLimited != 4 {
		t.Errorf("%d limited, -want +got:\n%s", r.KeysLimited, diff)
	}
}

// A field that is not in the usage is not documented.
func TestUsage_NamesEveryFieldAndOption(t *testing.T) {
	t.Parallel()
	for _, v := range []any{report{}, fileReport{}, lineReport{}, badLine{}, keyReport{}, overReport{}, storeReport{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(usage, name) {
				t.Errorf("the usage does not tell of the field %s", name)
			}
		}
	}
	for _, name := range []string{"limit", "window", "nodes", "spread", "seed", "reorder", "top", "json"} {
		if !strings.Contains(usage, "\n  -"+name+" ") {
			t.Errorf("the usage does not tell of the option -%s", name)
		}
	}
}

func TestReport_EmptyListsAreNotNull(t *testing.T) {
	t.Parallel()
	got := runWith("1000 a\n", "-limit", "1", "-json")
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got.stdout), &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"unreadable": "[]", "most_limited": "[]", "worst_over": "null"} {
		if text := string(fields[name]); text != want {
			t.Errorf("%s is %s, want %s", name, text, want)
		}
	}
}
