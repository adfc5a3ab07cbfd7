package limiter

import "os"

var dbg = os.Getenv("DBG") != ""
var dbgEntry *Entry

func debug(what string, e *Entry, n *near, in *instant, p *pace) {
	if !dbg {
		return
	}
	if dbgEntry == nil {
		dbgEntry = e
	}
	if e != dbgEntry {
		return
	}
	s := 1e9
	println(what, int(in.now/1e6)%1000000, "ep", in.epoch%10, "left", in.left/1e6, "tight", p.tight, "level", int(p.level), "H", int(n.headroom), "B", int(n.budget*s), "pass", int(p.pass*1000), "D", int(e.demand.fleet*s), "own", int(e.demand.own*s*10), "unseen", int(n.unseen), "samples", len(n.history.samples), "firm", n.history.firm, "believed", int(e.believed(e.part.l.grid)), "retired", int(e.retired), "denied", int(n.denied.fleet), "slope", int(p.slope*s))
}
