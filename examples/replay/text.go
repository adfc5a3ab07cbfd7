package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxKey is how many characters of a key the text report shows.
const maxKey = 48

var spreadNames = map[string]string{
	spreadRandom: "requests spread at random",
	spreadRound:  "requests spread in turn",
	spreadKey:    "each key on one of them",
}

// text returns the report for people.
func (r *report) text() string {
	var b strings.Builder
	window := shortDuration(seconds(r.WindowSeconds))
	fmt.Fprintf(&b, "Limit: %s requests per key in any %s, on %d nodes (%s)\n\n", thousands(r.Limit), window, r.Nodes, spreadNames[r.Spread])

	row := func(label string, n int64, note string) {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%-16s %14s   %s", label, thousands(n), note), " "))
	}
	share := func(n, of int64) string {
		if of == 0 {
			return ""
		}
		return percent(float64(n) / float64(of))
	}
	files := "from 1 log"
	if n := len(r.Files); n > 1 {
		files = fmt.Sprintf("from %d logs", n)
	}
	row("Lines read", r.Lines.Read, files+", "+showTime(r.From)+" to "+showTime(r.To)+" UTC")
	row("  replayed", r.Lines.Replayed, "")
	row("    late", r.Lines.Late, lateNote(r.Lines.Late))
	row("  unreadable", r.Lines.Unreadable, "")
	row("Requests", r.Requests, "")
	row("  admitted", r.Admitted, share(r.Admitted, r.Requests))
	row("  denied", r.Denied, share(r.Denied, r.Requests))
	row("Keys", int64(r.Keys), "")
	row("  ever limited", int64(r.KeysLimited), share(int64(r.KeysLimited), int64(r.Keys)))
	row("Store commands", r.Store.Commands, fmt.Sprintf("%.2f per request, in %s round trips", r.Store.CommandsPerRequest, thousands(r.Store.Exchanges)))
	row("  and for census", r.Store.CensusCommands, "by which the nodes count each other, in the time replayed")
	if r.Store.Unsent != 0 {
		row("Unsent", r.Store.Unsent, "admitted requests that the store was not told of")
	}

	b.WriteString("\nWorst over-admission: ")
	if w := r.WorstOver; w != nil {
		fmt.Fprintf(&b, "%.1f %% over the limit, for key %s in the %s that ended at\n%s UTC: %s admitted against a limit of %s.\n",
			w.Percent, showKey(w.Key), window, showTime(w.WindowEnd), thousands(w.Admitted), thousands(r.Limit))
	} else {
		fmt.Fprintf(&b, "never over the limit, in any %s of any key.\n", window)
	}

	if len(r.MostLimited) > 0 {
		b.WriteString("\nMost limited keys (times in UTC)\n")
		b.WriteString(r.table())
		fmt.Fprintf(&b, "\"limited for\" adds up the time between denials less than %s apart.\n", window)
	}

	if len(r.Unreadable) > 0 {
		b.WriteString("\nUnreadable lines")
		if shown := len(r.Unreadable); int64(shown) < r.Lines.Unreadable {
			fmt.Fprintf(&b, " (the first %d of %s)", shown, thousands(r.Lines.Unreadable))
		}
		b.WriteByte('\n')
		for _, l := range r.Unreadable {
			fmt.Fprintf(&b, "  %s:%d: %s\n", l.File, l.Line, l.Reason)
		}
	}
	for _, f := range r.Files {
		if f.Error != "" {
			fmt.Fprintf(&b, "\nNot read to its end: %s\n", f.Error)
		}
	}
	return b.String()
}

func lateNote(late int64) string {
	if late == 0 {
		return ""
	}
	return "out of order by more than -reorder, replayed at the time reached by then"
}

// table lists the most limited keys, the first column left-aligned and the
// others right-aligned.
func (r *report) table() string {
	rows := [][]string{{"key", "requests", "denied", "share", "first limited", "last limited", "limited for"}}
	for _, k := range r.MostLimited {
		rows = append(rows, []string{
			showKey(k.Key),
			thousands(k.Requests),
			thousands(k.Denied),
			percent(k.DeniedShare),
			showTime(k.FirstLimited),
			showTime(k.LastLimited),
			shortDuration(seconds(k.LimitedSeconds).Round(time.Second)),
		})
	}
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		fmt.Fprintf(&b, "  %-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			fmt.Fprintf(&b, "  %*s", widths[i+1], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// showKey makes a key fit for a terminal: keys come from whoever sent the
// requests, so they may hold control sequences.
func showKey(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) }) {
		key = strconv.Quote(key)
	}
	if runes := []rune(key); len(runes) > maxKey {
		key = string(runes[:maxKey-1]) + "…"
	}
	return key
}

func showTime(t time.Time) string { return t.Format(time.DateTime) }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// thousands returns n with its digits in groups of three.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// seconds returns s seconds; what a float64 is off by is far below a microsecond.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// shortDuration returns d without trailing zero units: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
