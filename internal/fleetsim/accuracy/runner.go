package main

import (
	"runtime"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

// subject is a case that figures are measured for.
type subject struct {
	workload string
	kind     fleetsim.Kind
	nodes    int
	epochs   int
}

// results holds what was measured.
type results map[subject]fleetsim.Summary

// mix returns the store commands per key and second that a fleet sends for a key
// of the reference's mix, on average, provided that the workloads of the mix have
// been run.
func (r results) mix(s subject) float64 {
	sum := 0.0
	for _, share := range fleetsim.Mix {
		s.workload = share.Workload().Name
		sum += share.Part * r[s].Mean.Commands
	}
	return sum * float64(s.nodes)
}

// runner runs subjects.
type runner struct {
	phases int
	rtt    time.Duration
	seed   uint64
}

// spec returns the run of s that begins at a phase.
func (r *runner) spec(s subject, phase time.Duration) fleetsim.Spec {
	spec := fleetsim.Spec{
		Workload: workloads[s.workload],
		Kind:     s.kind,
		Nodes:    s.nodes,
		Limit:    limit,
		Window:   window,
		Epochs:   s.epochs,
		Phase:    phase,
		RTT:      r.rtt,
		Seed:     r.seed,
	}
	if mixed[s.workload] {
		spec.Limit = fleetsim.MixLimit
	}
	return spec
}

// workloads holds all by name, and mixed those of the mix of keys.
var workloads, mixed = func() (map[string]fleetsim.Workload, map[string]bool) {
	all, mixed := map[string]fleetsim.Workload{}, map[string]bool{}
	for _, w := range fleetsim.Workloads {
		all[w.Name] = w
	}
	for _, share := range fleetsim.Mix {
		w := share.Workload()
		all[w.Name], mixed[w.Name] = w, true
	}
	return all, mixed
}()

// run runs each subject in every phase, as many runs at once as there are
// processors, and reports the summaries in order as they become complete.
func (r *runner) run(subjects []subject, report func(subject, fleetsim.Summary)) error {
	type outcome struct {
		figures fleetsim.Figures
		err     error
	}
	type job struct {
		spec fleetsim.Spec
		done chan<- outcome
	}
	phases := fleetsim.Phases(r.phases, window)
	jobs := make(chan job)
	stop := make(chan struct{})
	defer close(stop)
	waiting := make(chan chan outcome, len(subjects)*len(phases)) // in the order of the jobs
	go func() {
		defer close(jobs)
		for _, s := range subjects {
			for _, phase := range phases {
				done := make(chan outcome, 1)
				waiting <- done
				select {
				case jobs <- job{r.spec(s, phase), done}:
				case <-stop:
					return
				}
			}
		}
	}()
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for j := range jobs {
				var o outcome
				trace, err := fleetsim.Run(j.spec)
				if err == nil {
					o.figures = trace.Figures()
				}
				o.err = err
				j.done <- o
			}
		}()
	}
	for _, s := range subjects {
		var runs []fleetsim.Figures
		for range phases {
			o := <-<-waiting
			if o.err != nil {
				return o.err
			}
			runs = append(runs, o.figures)
		}
		report(s, fleetsim.Summarize(runs))
	}
	return nil
}

// collect runs subjects and returns all results.
func (r *runner) collect(subjects []subject) (results, error) {
	all := results{}
	err := r.run(subjects, func(s subject, f fleetsim.Summary) { all[s] = f })
	return all, err
}
