package main

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"
)

// report is what a replay found. Its JSON form is described in the usage.
type report struct {
	Limit         int64   `json:"limit"`
	WindowSeconds float64 `json:"window_seconds"`
	Nodes         int     `json:"nodes"`
	Spread        string  `json:"spread"`
	Seed          uint64  `json:"seed"`

	Files      []fileReport `json:"files"`
	Lines      lineReport   `json:"lines"`
	Unreadable []badLine    `json:"unreadable"`

	From        time.Time   `json:"from"`
	To          time.Time   `json:"to"`
	Requests    int64       `json:"requests"`
	Admitted    int64       `json:"admitted"`
	Denied      int64       `json:"denied"`
	Keys        int         `json:"keys"`
	KeysLimited int         `json:"keys_limited"`
	MostLimited []keyReport `json:"most_limited"`
	WorstOver   *overReport `json:"worst_over"`
	Store       storeReport `json:"store"`
}

type fileReport struct {
	Name       string `json:"name"`
	Lines      int64  `json:"lines"`
	Replayed   int64  `json:"replayed"`
	Unreadable int64  `json:"unreadable"`
	Late       int64  `json:"late"`
	Error      string `json:"error,omitempty"`
}

type lineReport struct {
	Read       int64 `json:"read"`
	Replayed   int64 `json:"replayed"`
	Unreadable int64 `json:"unreadable"`
	Late       int64 `json:"late"`
}

type keyReport struct {
	Key            string    `json:"key"`
	Requests       int64     `json:"requests"`
	Admitted       int64     `json:"admitted"`
	Denied         int64     `json:"denied"`
	DeniedShare    float64   `json:"denied_share"`
	FirstLimited   time.Time `json:"first_limited"`
	LastLimited    time.Time `json:"last_limited"`
	LimitedSeconds float64   `json:"limited_seconds"`
}

type overReport struct {
	Key       string    `json:"key"`
	WindowEnd time.Time `json:"window_end"`
	Admitted  int64     `json:"admitted"`
	Percent   float64   `json:"percent"`
}

type storeReport struct {
	Exchanges          int64   `json:"exchanges"`
	Commands           int64   `json:"commands"`
	CommandsPerRequest float64 `json:"commands_per_request"`
	CensusCommands     int64   `json:"census_commands"`
	Unsent             int64   `json:"unsent"`
}

func newReport(o options, in *input, t *tally, store *countingStore, unsent int64) *report {
	r := &report{
		Limit:         o.limit,
		WindowSeconds: o.window.Seconds(),
		Nodes:         o.nodes,
		Spread:        o.spread,
		Seed:          o.seed,
		Unreadable:    append([]badLine{}, in.unreadable...), // [] in JSON, not null
		From:          t.first,
		To:            t.last,
		Requests:      t.admitted + t.denied,
		Admitted:      t.admitted,
		Denied:        t.denied,
		Keys:          len(t.keys),
		MostLimited:   []keyReport{},
		Store:         storeReport{Exchanges: store.exchanges, Commands: store.commands, CensusCommands: store.census, Unsent: unsent},
	}
	if r.Requests > 0 {
		r.Store.CommandsPerRequest = float64(store.commands) / float64(r.Requests)
	}
	for _, s := range in.sources {
		f := fileReport{Name: s.name, Lines: s.replayed + s.unreadable, Replayed: s.replayed, Unreadable: s.unreadable, Late: s.late}
		if s.err != nil {
			f.Error = s.err.Error()
		}
		r.Files = append(r.Files, f)
		r.Lines.Read += f.Lines
		r.Lines.Replayed += f.Replayed
		r.Lines.Unreadable += f.Unreadable
		r.Lines.Late += f.Late
	}

	var limited []*keyTally
	for _, k := range t.keys {
		if k.denied > 0 {
			limited = append(limited, k)
		}
		r.considerPeak(k)
	}
	r.KeysLimited = len(limited)
	slices.SortFunc(limited, func(a, b *keyTally) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(a.key, b.key))
	})
	for _, k := range limited[:min(o.top, len(limited))] {
		requests := k.admitted + k.denied
		r.MostLimited = append(r.MostLimited, keyReport{
			Key:            k.key,
			Requests:       requests,
			Admitted:       k.admitted,
			Denied:         k.denied,
			DeniedShare:    float64(k.denied) / float64(requests),
			FirstLimited:   k.firstDenied,
			LastLimited:    k.lastDenied,
			LimitedSeconds: k.limited.Seconds(),
		})
	}
	return r
}

// considerPeak makes the fullest window of k the worst of all if it is: the one
// with most admitted, and of equal ones the earliest, whatever the order in which
// the keys come.
func (r *report) considerPeak(k *keyTally) {
	n, end := k.log.Peak()
	if n <= r.Limit {
		return
	}
	if w := r.WorstOver; w != nil &&
		cmp.Or(cmp.Compare(w.Admitted, n), end.Compare(w.WindowEnd), cmp.Compare(k.key, w.Key)) > 0 {
		return
	}
	r.WorstOver = &overReport{
		Key:       k.key,
		WindowEnd: end,
		Admitted:  n,
		Percent:   100 * float64(n-r.Limit) / float64(r.Limit),
	}
}

// write prints the report, as text or as JSON.
func (r *report) write(w io.Writer, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, r.text())
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
