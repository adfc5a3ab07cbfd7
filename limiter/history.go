package limiter

import "sync"

// maxSamples bounds the samples of a history. They are at least a 60th of the
// window apart, and reach back two such steps more than the window.
const (
	maxSamples       = 64
	samplesPerWindow = 60
)

// sample is a point of a key's cumulative count: what the fleet has admitted
// since some moment before the window, at a time.
type sample struct {
	at  int64 // unix time in nanoseconds
	cum float64
}

// history is the recent past of a key's cumulative count. It turns the counters of
// two epochs into a sliding window of nearly tick resolution: the level is the
// cumulative count now less the one a window ago (accuracy study, section D).
// Between samples the count is taken to have grown evenly.
//
// Samples up to firm rest on a reply; those after it on a prediction, which the
// next reply corrects.
type history struct {
	samples []sample
	firm    int
}

// historyPool recycles the memory of histories.
var historyPool = sync.Pool{New: func() any { return new([maxSamples]sample) }}

func newHistory() history {
	return history{samples: historyPool.Get().(*[maxSamples]sample)[:0]}
}

// release gives the memory back. The history is empty then.
func (h *history) release() {
	historyPool.Put((*[maxSamples]sample)(h.samples[:cap(h.samples)]))
	*h = history{}
}

// at returns the cumulative count at a time, interpolated.
func (h *history) at(t int64) float64 { return interpolate(h.samples, t) }

// interpolate returns the value at t of the line through samples, at least one.
// Before the first and after the last it is level.
func interpolate(s []sample, t int64) float64 {
	if t <= s[0].at {
		return s[0].cum
	}
	last := len(s) - 1
	if t >= s[last].at {
		return s[last].cum
	}
	low, high := 0, last // s[low].at < t < s[high].at, or equal to the first
	for high-low > 1 {
		if middle := (low + high) / 2; s[middle].at <= t {
			low = middle
		} else {
			high = middle
		}
	}
	part := float64(t-s[low].at) / float64(s[high].at-s[low].at)
	return s[low].cum + part*(s[high].cum-s[low].cum)
}

// reaches returns the first time at which the count is at least cum, or that of the
// last sample.
func (h *history) reaches(cum float64) int64 {
	s := h.samples
	i := 0
	for i < len(s)-1 && s[i].cum < cum {
		i++
	}
	if i == 0 || s[i].cum <= s[i-1].cum {
		return s[i].at
	}
	part := min(1, (cum-s[i-1].cum)/(s[i].cum-s[i-1].cum))
	return s[i-1].at + int64(part*float64(s[i].at-s[i-1].at))
}

// part writes the line from from to to into dst, delayed by delay, and returns how
// many samples that took. If there are more than dst holds, some in the middle
// are left out.
func (h *history) part(dst []sample, from, to, delay int64) int {
	dst[0] = sample{from + delay, h.at(from)}
	n := 1
	for _, x := range h.samples {
		if x.at > from && x.at < to && n < len(dst)-1 {
			dst[n] = sample{x.at + delay, x.cum}
			n++
		}
	}
	dst[n] = sample{to + delay, h.at(to)}
	return n + 1
}

// growth returns by how much the count grew from from to to, per nanosecond.
func (h *history) growth(from, to int64) float64 {
	return max(0, h.at(to)-h.at(from)) / float64(to-from)
}

// retract drops what rests on predictions.
func (h *history) retract() { h.samples = h.samples[:h.firm+1] }

// rewind drops samples that lie ahead of t.
func (h *history) rewind(t int64) {
	n := len(h.samples)
	for n > 1 && h.samples[n-1].at > t {
		n--
	}
	h.samples = h.samples[:n]
	h.firm = min(h.firm, n-1)
}

// confirm takes in a reply that puts the count at cum, where expected had been
// predicted. The error is spread over the time since the last reply, and samples
// above the new count are cut down to it: counts do not shrink.
func (h *history) confirm(t int64, cum, expected float64, resolution int64) {
	s := h.samples
	since := s[h.firm].at
	if t > since {
		for i := h.firm + 1; i < len(s); i++ {
			s[i].cum += (cum - expected) * min(1, float64(s[i].at-since)/float64(t-since))
		}
	}
	h.add(sample{t, cum}, resolution)
	h.firm = len(h.samples) - 1
	for i := h.firm - 1; i >= 0 && h.samples[i].cum > cum; i-- {
		h.samples[i].cum = cum
	}
}

// add appends a sample. One that is nearer than resolution to the one before it
// makes way for it, if that leaves no gap.
func (h *history) add(x sample, resolution int64) {
	last := len(h.samples) - 1
	if last >= 0 && x.at < h.samples[last].at {
		h.samples[last].cum = x.cum
		return
	}
	if last >= 0 && x.at == h.samples[last].at {
		if x.cum == h.samples[last].cum {
			return
		}
		x.at++ // a step: what came at this moment did not come before it
	}
	if last > 0 && h.samples[last].at-h.samples[last-1].at < resolution && x.at-h.samples[last-1].at < 2*resolution {
		h.samples = h.samples[:last]
		h.firm = min(h.firm, last-1)
	}
	if len(h.samples) == cap(h.samples) {
		h.forget(h.samples[1].at)
	}
	h.samples = append(h.samples, x)
}

// forget drops the samples that are not needed to tell the count from t on.
func (h *history) forget(t int64) {
	n := 0
	for n+1 < len(h.samples) && h.samples[n+1].at <= t {
		n++
	}
	h.samples = append(h.samples[:0], h.samples[n:]...)
	h.firm = max(0, h.firm-n)
}
